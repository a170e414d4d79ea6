"""Moto in this process, one request at a time: the one that users' tests get, too."""

from __future__ import annotations

from fenceline_testing.service import locked_moto

__all__ = ["locked_moto"]
