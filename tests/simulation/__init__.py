"""Races, faults and crashes on a seeded schedule.

The real protocol code runs in simulated processes, over stores that fail.

Run many seeds with ``python -m tests.simulation --seeds 1000``; a seed that fails prints its history and the command
that replays it.

A scenario (``harness.scenario.Scenario``) says what its seeds draw, how they are played and what must hold then;
``scenarios`` has the table of all. ``test_guards`` declares a scenario's guards (``harness.guards``): a seed finds each
one that is switched off.

Where each invariant of the protocol, "Invariants", is checked:

- I1: ``log.scenario.judge``. Each object is as it was created, or was deleted.

- I2: ``log.truth.PartitionLog.add``. Every batch begins where the one before it ended.

- I3: ``harness.real.Index._head`` and ``_producer``. At every write, an item says what the durable segments say once
  they are folded.

- I4: ``log.checker._refused``, ``_duplicate``, ``_out_of_range`` and ``_not_the_tail``. Every answer was true at some
  moment between call and return.

- I5: ``harness.real.Index._head`` and ``_producer``. No item names an offset that is not durable.

- I6: ``harness.real.Index.on_delete``. At every deletion, the stores' contents at that moment allow it; ``_is_left``
  for compacted views.

- I7: ``log.checker._check_append``. What was acknowledged is in the log, in an incarnation that was not over. Its key
  was not made again where a segment was collected (``log.truth.Truth.ghosts``).

- I9: ``log.clients.break_things`` sets clocks; all of the above holds all the same.

``log.test_guards`` shows that each check can fail. ``harness.test_harness`` shows it for a toy log that is broken in
known ways.

``--scenario access`` plays exclusive access instead (``access.scenario``). It has claims in all modes, sessions,
owners, waiters, and fenced clients that come back. Clocks differ by up to 20 s. There:

- I8 and promise 3, single writer: ``access.log.check_log``, record by record; ``check_severed`` for owners' answers.

- One holder per epoch, and all records of earlier epochs below the offset that a grant was answered:
  ``access.checker._not_granted``.

- Fencing tokens grow: ``access.items._check_owner`` and ``access.checker._check_tokens``; FIFO: ``access.items._Line``.

- Refusals were true at some moment, by some process's clock (I4, I9): ``access.refusals``.

``access.test_guards`` shows that each of these can fail.

``--scenario transactions`` plays transactions (``transactions.scenario``): producers that take one id from each other,
processors that read, process and write, readers, sweepers, and clients that guess pairs. There:

- I10, I13: ``transactions.truth.TransactionTruth._take_transaction`` at every write of an item, and
  ``transactions.checker._check_end``, ``_check_pairs`` and ``_check_repeats`` for the answers.

- I11, I12: ``transactions.truth.TransactionTruth._judge_batch``, ``_fold_marker`` and ``_judge_open`` at every create;
  ``_judge_complete`` at every end.

- I14, I15: ``transactions.truth.TransactionTruth._judge_pending`` and ``_take_cursor``, at every write of a cursor.

- Promise 4, exactly once: ``transactions.checker._check_transaction``, ``_check_read`` and ``check_processed``.

``transactions.test_guards`` shows that each of these can fail.

``--scenario once`` plays drivers that end their batches with a version (``once.scenario``), beside their zombies and
producers that end several transactions together. All of the above holds there. Besides:

- I26: ``once.truth.OnceTruth._judge_whole``. Each write that decides is what one request asked for, whole.

- I27: ``once.truth.OnceTruth._take_once`` at every write. ``once.checker._check_batches``: each version that was raised
  shows all of its rows once, from one run, and no other run shows any.

- I28: ``once.truth.OnceTruth._judge_item`` and ``_judge_due`` at every write, ``once.checker._check_extended``.

- Answers were true at some moment: ``once.checker._check_close`` and ``_check_once``.

``once.test_guards`` shows that each of these can fail.
"""
