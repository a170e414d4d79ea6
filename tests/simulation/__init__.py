"""Races, faults and crashes on a seeded schedule.

The real protocol code runs in simulated processes, over stores that fail.

Run many seeds with ``python -m tests.simulation --seeds 1000``; a seed that fails prints its history and the command
that replays it.

Where each invariant of DESIGN.md, section 4, is checked:

- I1: ``log.scenario._judge``: what was created stands as it was created, or was deleted.
- I2: ``log.truth.PartitionLog.add``: every batch begins where the one before it ended.
- I3: ``harness.real.Index._head`` and ``_producer``: at every write, an item says what a fold of the durable segments
  says.
- I4: ``log.checker._refused``, ``_duplicate``, ``_out_of_range`` and ``_not_the_tail``: what was told was true at some
  moment between call and return.
- I5: ``harness.real.Index._head`` and ``_producer``: no item names an offset that is not durable.
- I6: ``harness.real.Index.on_delete``: at every deletion, what stands in the stores allows it; ``_is_left`` for
  compacted views.
- I7: ``log.checker._check_append``: what was acknowledged is in the log, at a key that was not made again where a
  segment was collected (``log.truth.Truth.ghosts``), and in a life that was not over.
- I9: ``log.clients.break_things`` sets clocks; all of the above holds all the same.

That each check can fail is shown by ``log.test_guards``, and by ``harness.test_harness`` for a toy log that is broken
in known ways.

``--scenario access`` plays exclusive access instead: claims in all modes, sessions, owners, waiters, whoever was fenced
and comes back, and clocks that differ by up to 20 s (``access.scenario``). There:

- I8 and promise 3, single writer: ``access.log.check_log``, record by record; ``check_severed`` for owners' answers.
- One holder per epoch, and all of earlier epochs below what a grant was told: ``access.checker._not_granted``.
- Fencing tokens grow: ``access.items._check_owner`` and ``access.checker._check_tokens``; FIFO: ``access.items._Line``.
- Refusals were true at some moment, by some process's clock (I4, I9): ``access.refusals``.

That each of these can fail is shown by ``access.test_guards``.
"""
