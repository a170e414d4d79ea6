"""The demo: the main job as a stranger runs it, and proof that its comparisons can fail."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from fenceline.format.batch import StoredRecord
from fenceline.model.record import Record

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # for dataclasses, which look for it there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["demo"]


@pytest.mark.slow
def test_the_demo_loads_everything_reads_it_back_the_same_and_leaves_it_behind(tmp_path):
    (tmp_path / "demo-data").mkdir()  # of an earlier run: left alone

    ended = subprocess.run(
        [sys.executable, DEMO], cwd=tmp_path, capture_output=True, text=True, timeout=1_800, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    for line in (
        "loaded reviews into 8 partitions: 578,805 in",
        "loaded access-log lines: 10,000 in",
        "= 200 offsets, each won once",
        "duplicate: true; sent 2 × 1,000, stored 1,000",
        "read the reviews back: 578,805 in",
        "2,370,789 bytes, the same file",
        "every segment is sound",
        "dev --data demo-data-2",
    ):
        assert line in ended.stdout
    assert list((tmp_path / "demo-data").iterdir()) == []
    assert list((tmp_path / "demo-data-2").iterdir()) != []


@pytest.mark.slow
def test_the_demo_ends_with_one_line_and_exit_code_1_if_it_cannot_serve(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(demo, "fresh_directory", lambda: Path("file") / "below")

    assert demo.main() == 1
    assert "✗" in capsys.readouterr().out


GIVEN = [Record(b"a,1", key=b"a", timestamp=5), Record(b"b,1", key=b"b", timestamp=6), Record(b"a,2", key=b"a")]
STORED = [StoredRecord(n, one.timestamp or 9, one.key, one.value, []) for n, one in enumerate(GIVEN)]


def changed(index, **members):
    return [dataclasses.replace(one, **members) if n == index else one for n, one in enumerate(STORED)]


def test_a_partition_that_came_back_as_it_went_in_compares_equal(demo):
    assert demo.compare_partition(0, GIVEN, STORED) is None  # no error


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (STORED[:2], "another count"),
        (changed(2, offset=3), "gaps"),
        (changed(1, value=b"b,2"), "other values"),
        ([dataclasses.replace(STORED[1 - n], offset=n) if n < 2 else STORED[n] for n in range(3)], "another order"),
        (changed(1, timestamp=7), "other timestamps"),
    ],
    ids=["lost", "gap", "changed", "swapped", "time"],
)
def test_a_partition_that_came_back_otherwise_does_not(demo, stored, why):
    with pytest.raises(demo.ComparisonError, match=why):
        demo.compare_partition(0, GIVEN, stored)


def test_the_digest_by_key_sees_the_order_within_a_key_and_not_between_keys(demo):
    assert demo.digest_by_key(GIVEN) == demo.digest_by_key([GIVEN[1], GIVEN[0], GIVEN[2]])
    assert demo.digest_by_key(GIVEN) != demo.digest_by_key([GIVEN[2], GIVEN[1], GIVEN[0]])
    assert demo.digest_by_key(GIVEN) != demo.digest_by_key(GIVEN[:2])
