from __future__ import annotations

from tests.http.conftest import runtime, service, topic

__all__ = ["runtime", "service", "topic"]
