"""Errors as a person sees them, who has PySpark's traceback of a worker before the message."""

from __future__ import annotations

import traceback

import pytest

from fenceline.errors import CorruptLogError, FencelineError, InvalidRequestError, StoreUnavailableError
from fenceline_spark.plain_errors import plain_errors


@plain_errors
def asked(error: Exception) -> None:
    deeper(error)


def deeper(error: Exception) -> None:
    try:
        raise OSError("connection refused")
    except OSError as cause:
        raise error from cause


@pytest.mark.parametrize("kind", [InvalidRequestError, StoreUnavailableError, CorruptLogError])
def test_an_error_of_fenceline_is_its_message(kind: type[FencelineError]) -> None:
    with pytest.raises(kind) as caught:
        asked(kind("what to do: key=value"))
    shown = "".join(traceback.format_exception(caught.value))
    assert "deeper" not in shown
    assert "OSError" not in shown
    assert shown.endswith(f"{kind.__name__}: what to do: key=value\n")


def test_any_other_error_keeps_its_traceback() -> None:
    with pytest.raises(KeyError) as caught:
        asked(KeyError("x"))
    shown = "".join(traceback.format_exception(caught.value))
    assert "in deeper" in shown
    assert "OSError: connection refused" in shown
