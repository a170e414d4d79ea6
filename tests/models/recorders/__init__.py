"""One recorder for each model that has traces: ``record`` plays a seed, and ``WITHOUT`` names what it can leave out."""

from __future__ import annotations

from tests.models.recorders import access, append, combining, transaction

RECORDERS = {"Append": append, "Access": access, "Combining": combining, "Transaction": transaction}
