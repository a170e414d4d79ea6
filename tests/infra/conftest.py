"""Where Node is missing, the tests of stacks are reported in one line."""

from __future__ import annotations

import pytest

from tests.servers.install import need_node
from tests.servers.once import tell_once


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tell_once(config, items, lambda item: item.path.name.startswith("test_stack"), need_node)
