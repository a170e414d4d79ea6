"""The answers to store facts that a request met."""

from __future__ import annotations

import pytest

from fenceline.errors import ContendedError
from fenceline.ports import ItemKey, VersionMoved
from fenceline.service.resolver import translated


def test_a_contended_request_names_no_key_of_an_item() -> None:
    """The key may be another caller's session."""

    @translated
    def change() -> None:
        raise VersionMoved(ItemKey("sessions/0", "secret"))

    with pytest.raises(ContendedError) as refused:
        change()
    assert "secret" not in str(refused.value)
    assert "send the request again" in refused.value.detail
