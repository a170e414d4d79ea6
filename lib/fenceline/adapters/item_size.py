"""What an item counts towards the limit of 400 KB: see ``fenceline.item_size``, by which every adapter judges."""

from __future__ import annotations

from fenceline.item_size import size_of

__all__ = ["size_of"]
