from __future__ import annotations

from tests.http.conftest import service, topic

__all__ = ["service", "topic"]
