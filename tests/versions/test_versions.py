"""The comparison of versions itself: it is silent where nothing differs, and finds one byte that does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_events import DOCUMENT
from tests.versions import static
from tests.versions.trees import HERE, LIB

OK = (200, 201, 202, 204)
# Where each kind of item is, by the first part of its partition key or, below ``partition/``, of its sort key. Left out
# are poll slots, which only a deployed function has, and what no request leaves behind: ``unowned``, ``rebuild``.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("versions")]  # the session is played once

KINDS = {
    *(
        "acknowledged",
        "compacted",
        "cursors",
        "gone",
        "group",
        "groups",
        "log",
        "offers",
        "once",
        "own",
        "producer-ids",
        "producers",
    ),
    *("sessions", "state", "subscriptions", "sweep", "tickets", "topic", "topics", "transactions"),
    *(f"partition/{sort}" for sort in ("aborted", "access", "head", "link", "own", "producer", "round")),
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[static.Step]:
    """Both halves of the session, played by this checkout."""
    directory = tmp_path_factory.mktemp("played")
    return [step for half in (0, 1) for step in static.play(LIB, directory, half)]


def test_one_version_answers_and_stores_the_same_twice(played: list[static.Step], tmp_path: Path) -> None:
    again = [step for half in (0, 1) for step in static.play(LIB, tmp_path, half)]
    assert not [*static.differences(played, again)]


def test_the_session_meets_each_route_and_each_kind_of_what_is_stored(played: list[static.Step]) -> None:
    answered = {tuple(step[0].split(" ")[1:3]) for step in played if isinstance(step[1], list) and step[1][0] in OK}
    missed = [
        (method.upper(), path)
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
        if not any(_fits(path, sent) for by, sent in answered if by == method.upper())
    ]
    assert not missed
    kinds = {_kind(json.loads(row.split(" ", 2)[2])) for step in played for row in step[2]}
    assert kinds == KINDS


def _fits(path: str, sent: str) -> bool:
    parts, others = path.split("/"), sent.split("?")[0].split("/")
    return len(parts) == len(others) and all(a.startswith("{") or a == b for a, b in zip(parts, others, strict=True))


def _kind(row: list[object]) -> str:
    first, second = str(row[0]).split("/")[0], str(row[1]).split("/")[0]
    return f"{first}/{second}" if first == "partition" else first


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout with one byte changed in a stored key, and one in an answer."""
    copied = tmp_path_factory.mktemp("changed")
    shutil.copytree(LIB, copied / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, other in (
        ("fenceline/format/keys.py", 'f"sessions/', 'f"sessionz/'),
        ("fenceline/errors.py", '"offset mismatch"', '"offset mismatcH"'),
    ):
        source = (copied / "lib" / file).read_text()
        assert source.count(text) == 1
        (copied / "lib" / file).write_text(source.replace(text, other))
    return copied


def test_one_byte_that_is_stored_or_answered_otherwise_is_found(
    played: list[static.Step], changed: Path, tmp_path: Path
) -> None:
    found = [*static.differences(played, static.play(changed / "lib", tmp_path, 0))]
    for step in ("a POST /v1/sessions ", "a POST /v1/topics/orders/partitions/0/records "):
        assert any(line.startswith(step) for line in found)


@pytest.mark.prove
@pytest.mark.parametrize("part", ["mixed", "servers"])
def test_versions_side_by_side_agree_unless_one_has_an_item_elsewhere(changed: Path, part: str) -> None:
    few = ["--part", part, "--scenario", "access", "--seeds", "5", "--seconds", "6"]
    ended = [
        subprocess.run([sys.executable, "-m", "tests.versions", str(tree), *few], cwd=HERE, check=False).returncode
        for tree in (HERE, changed)
    ]
    assert ended == [0, 1]
