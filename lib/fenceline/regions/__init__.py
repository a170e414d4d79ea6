"""Regions: a topic's logs in several regions, each pulled by the others, and subscriptions that move between them.

* ``peer`` is another region as it is asked.

Rule: no produce, read, claim or acknowledgement waits for another region, or fails because of one (I25).
"""
