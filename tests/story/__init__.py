"""The product, told by twelve tests that use only what is public. Read them in order; each takes a minute.

1. ``s01_two_writers``: two writers race for one offset, and the loser learns of it.
2. ``s02_lost_answer``: an answer is lost, and the retry is no duplicate.
3. ``s03_readers``: a record that was read is kept, at its offset, and no offset is left out.
4. ``s04_exclusive_writer``: one producer has the topic, and the next one waits in a queue.
5. ``s05_fenced_writer``: a writer is paused, replaced, and wakes up; nothing that it still sends lands.
6. ``s06_owner``: the higher generation owns a resource, and a lower one never gets it back.
7. ``s07_transaction``: records of several topics show together or not at all.
8. ``s08_exactly_once``: a worker dies between its output and its offset; each input has one effect.
9. ``s09_zombie``: a transactional id begins anew, and its earlier instance can commit nothing.
10. ``s10_retention``: old records go, by a trim and by age; offsets stay what they were.
11. ``s11_subscription_moves``: a subscription goes on in another region, and loses no record.
12. ``s12_region_lost``: a region is lost: what is there then, what is not, and what comes back.

Rule: these files import ``fenceline``, ``fenceline_testing``, pytest and the standard library, and no private name.
``test_story.py`` holds that, and that each quotation is what the protocol says.
"""
