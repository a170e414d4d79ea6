"""Names of the emulated AWS's APIs, which no resolver knows: they lead to this machine.

Rule: Python imports this by its name, in each process whose ``PYTHONPATH`` has this folder. No test imports it.
"""

from __future__ import annotations

import socket
from typing import Any

_known = socket.getaddrinfo


def _getaddrinfo(host: Any, *about: Any, **named: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    return _known("127.0.0.1" if ".execute-api." in (name or "") else host, *about, **named)


socket.getaddrinfo = _getaddrinfo
