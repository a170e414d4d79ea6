"""An older version beside this one: what they answer and store, in one simulated world, and as servers on one log.

``python -m tests.versions OLD_REF`` says whether a change keeps every answer and every stored byte, and whether
processes of both versions can work side by side. It fails at the first part that finds a difference, with that
difference.
"""
