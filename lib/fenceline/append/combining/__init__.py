"""Appends through another process's create ("Combining", I16). Only processes that contend import this package.

``offers`` has what is stored, ``own_offers`` this process's offers, ``round_item`` the reads and writes of the round.
``combiner`` decides when to offer, wait and create.
"""
