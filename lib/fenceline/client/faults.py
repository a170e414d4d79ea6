"""Faults in threads of the client, or in a caller's callbacks there.

Rule: no caller is there to raise them to, so they go where those of any thread go. The thread goes on.
"""

from __future__ import annotations

import sys
import threading


def report_fault() -> None:
    """Give the exception that is being handled to ``threading.excepthook``."""
    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
