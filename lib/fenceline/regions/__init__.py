"""Regions: a topic's logs in several regions, each pulled by the others, and subscriptions that move between them.

Rule: no produce, read, claim or acknowledgement waits for another region, or fails because of one (I25).

Start with ``replicator``. A run over one partition fetches from each source, applies the fetched segments, and notes
how far it came. Then it does the work that is due. The other modules, in the order in which a run enters them:

* The job: ``partition_job`` is one partition's job, ``link_item`` its lease and its scan notes.
* Pulling: ``direct_source`` asks a region for its own records, and resumes at a ``resume_point``. ``relay_source`` asks
  a peer for the records of a suspended region. Both are a ``Source`` of ``apply_source``.
* Applying: ``source_batches`` checks and packs the batches, ``apply_source`` appends them.
* Peers: ``peer`` is the interface to another region, ``peer_status`` has its last answers.
* Due work: ``due_work`` finds and does it. ``snapshots`` asks and answers other regions, ``apply_updates`` moves
  cursors here, and ``announce_subscriptions`` announces subscriptions and their cursors to other regions.
* For operators: ``status``, with the figures of alarms.
"""
