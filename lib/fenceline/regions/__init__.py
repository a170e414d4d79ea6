"""Regions: a topic's logs in several regions, each pulled by the others, and subscriptions that move between them.

Rule: no produce, read, claim or acknowledgement waits for another region, or fails because of one (I25).

Start with ``replicator``. A run over one partition fetches from each source, applies what it fetched, and notes how far
it came. Then it does what is due. The others, in the order in which a run enters them:

* What it works on: ``partition_job`` is one partition's job, ``link_item`` its lease and its scan notes.
* What is pulled: ``direct_source`` asks a region for its own records, and decides by ``resume_point`` where to go on.
  ``relay_source`` asks a peer for the records of a suspended region. Both are a ``Source`` of ``apply_source``.
* What is applied: ``source_batches`` checks and packs the batches, ``apply_source`` appends them.
* What is known of peers: ``peer`` is another region as it is asked, ``peer_status`` is what it last answered.
* What is due: ``due_work`` finds and does it. ``snapshots`` asks and answers other regions, ``apply_updates`` moves
  cursors here, and ``announce_subscriptions`` says to other regions which subscriptions exist, and where they are.
* What an operator sees: ``status``, with the figures of alarms.
"""
