from __future__ import annotations

from tests.http.conftest import peers, runtime, service, topic

__all__ = ["peers", "runtime", "service", "topic"]
