"""What ``import fenceline`` gives."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import fenceline

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = ("lib", "infra", "functions", "benchmarks", "examples", "models", "tests")
# Without CHANGELOG.md, which says what was.
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "app.py", ".ci/run")
TEXTS = [ROOT / page for page in PAGES] + [
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".txt"}
]
# `fenceline` as a requirement: with extras or a version, behind an installer, or asked of what is installed.
ANOTHERS = re.compile(
    r"""(?<![\w-])fenceline\??\[[a-z{]"""
    r"""|(?<![\w-])fenceline *(?:[=~!<>]=|@ )"""
    r"""|\b(?:pip3?|pipx|uvx?|uv) (?:[\w-]+ )*[^`\n|]*?(?<![\w/.-])fenceline(?![\w/.-])"""
    r"""|\b(?:version|distribution|files|requires)\(["']fenceline["']\)"""
)


def test_the_package_shows_its_names_and_nothing_else() -> None:
    import fenceline.client  # makes submodules attributes of the package

    assert dir(fenceline) == sorted(fenceline.__all__)
    assert {"Client", "Record", "errors", "Producer", "Reader", "Subscriber", "__version__"} <= set(dir(fenceline))
    assert all(hasattr(fenceline, name) for name in fenceline.__all__)


def test_the_old_name_of_the_subscriber_that_fails_over_warns_and_works() -> None:
    with pytest.warns(DeprecationWarning, match="use the new name") as warned:
        old = fenceline.subscribe
    assert (old, warned[0].filename) == (fenceline.subscribe_with_failover, __file__)


def test_names_of_the_client_are_public_names_of_the_package() -> None:
    import fenceline.client

    assert {name: getattr(fenceline.client, name) for name in fenceline.client.__all__}.items() <= {
        name: getattr(fenceline, name) for name in fenceline.__all__
    }.items()


def test_the_types_of_what_appends_and_reads_return_and_take_are_public() -> None:
    from fenceline.client.requests.log import LogRequests
    from fenceline.client.requests.poll import PollRequests

    append, read = inspect.get_annotations(LogRequests.produce), inspect.get_annotations(LogRequests.read)
    named = {append["return"], read["return"], read["isolation"], "ReadRecord"}
    assert named == {"Appended", "Page", "Isolation", "ReadRecord"} & set(fenceline.__all__)
    assert inspect.get_annotations(PollRequests.poll)["positions"] == "Sequence[PollPosition]"
    assert "PollPosition" in fenceline.__all__
    assert fenceline.Page.__dataclass_fields__["records"].type == "Sequence[ReadRecord]"


def test_the_version_is_the_projects() -> None:
    assert fenceline.__version__ == PROJECT["version"]


def test_the_distribution_has_a_name_of_its_own() -> None:
    """On PyPI, ``fenceline`` is another project's package."""
    assert PROJECT["name"] == "fenceline-log"
    assert metadata.metadata("fenceline-log")["Name"] == "fenceline-log"


def test_no_text_of_ours_names_a_package_that_is_not_ours() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if ANOTHERS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_anothers"),
    [
        ('pip install "fenceline[spark]"', True),
        ("needs ``fenceline[aws]``", True),
        ("pip install fenceline", True),
        ("python -m pip install -U fenceline", True),
        ("uv add fenceline", True),
        ("fenceline==0.1.0", True),
        ('metadata.version("fenceline")', True),
        ('pip install "fenceline-log[spark]"', False),
        ("pip install fenceline-log", False),
        ('metadata.version("fenceline-log")', False),
        ("fenceline dev --data ./data", False),
        ("pip install ./lib/fenceline", False),
    ],
)
def test_a_requirement_is_seen_as_one(text: str, is_anothers: bool) -> None:
    assert bool(ANOTHERS.search(text)) is is_anothers


def test_each_extra_that_a_text_names_is_there() -> None:
    named = {
        extra
        for path in TEXTS
        for extras in re.findall(r"fenceline-log\[([a-z,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert {"aws", "server", "spark", "java", "plot"} <= named <= set(PROJECT["optional-dependencies"])


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Broker"):
        fenceline.Broker  # noqa: B018


def test_the_package_alone_loads_nothing_of_its_own_and_no_transport() -> None:
    program = (
        "import sys, fenceline; print(*sorted(m for m in sys.modules if m.partition('.')[0] in {'fenceline', 'httpx'}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["fenceline"]
