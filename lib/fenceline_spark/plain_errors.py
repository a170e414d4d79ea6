"""Errors as a notebook shows them. PySpark prints a traceback of its worker, of which the last line matters.

Rule: an error of fenceline's own comes without the frames of this package, because it says what happened and what to
do. Any other error keeps its frames, because only they show where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fenceline.errors import FencelineError

P = ParamSpec("P")
T = TypeVar("T")


def plain_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Return ``method``, which PySpark calls, with fenceline's errors cut to their message."""

    @wraps(method)
    def call(*args: P.args, **named: P.kwargs) -> T:
        try:
            return method(*args, **named)
        except FencelineError as error:
            raise error.with_traceback(None) from None

    return call
