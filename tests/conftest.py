"""What all tests share: how many examples a property is tried on, and what each would read again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from unittest import mock

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("all", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("all"), max_examples=15)  # of `make check`
settings.load_profile("all")


@pytest.fixture(scope="session", autouse=True)
def botocore_reads_its_descriptions_once() -> Iterator[None]:
    """Not for each client anew, which takes 0.1 s."""
    with mock.patch.object(botocore.session, "create_loader", cache(botocore.session.create_loader)):
        yield
