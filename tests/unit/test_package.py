"""What ``import fenceline`` gives."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fenceline

ROOT = Path(__file__).parents[2]


def test_the_package_shows_its_names_and_nothing_else() -> None:
    import fenceline.client  # makes submodules attributes of the package

    assert dir(fenceline) == sorted(fenceline.__all__)
    assert {"Client", "Record", "errors", "Producer", "Reader", "Subscriber", "__version__"} <= set(dir(fenceline))
    assert all(hasattr(fenceline, name) for name in fenceline.__all__)


def test_what_the_client_shows_is_public_by_the_packages_own_names() -> None:
    import fenceline.client

    assert {name: getattr(fenceline.client, name) for name in fenceline.client.__all__}.items() <= {
        name: getattr(fenceline, name) for name in fenceline.__all__
    }.items()


def test_the_version_is_the_projects() -> None:
    assert fenceline.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        fenceline.Broker  # noqa: B018


def test_the_package_alone_loads_nothing_of_its_own_and_no_transport() -> None:
    program = (
        "import sys, fenceline; print(*sorted(m for m in sys.modules if m.partition('.')[0] in {'fenceline', 'httpx'}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["fenceline"]
