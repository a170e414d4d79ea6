"""Moto in this process, one request at a time: the same service that users' tests get."""

from __future__ import annotations

from fenceline_testing.service import locked_moto

__all__ = ["locked_moto"]
