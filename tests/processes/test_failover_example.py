"""The example of a failover, as a stranger runs it, and proof that its comparisons can fail."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import failover

    return failover


@pytest.mark.slow
def test_a_consumer_goes_on_in_another_region_and_back_and_loses_nothing(tmp_path):
    command = [sys.executable, EXAMPLES / "failover.py", "--seed", "1"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    printed = ended.stdout

    assert ended.returncode == 0, printed + ended.stderr
    assert "(seed 1)\n" in printed
    steps = ["a is killed", "goes on in b", "a comes back", "active region is set to a", "goes on in a", "writers end"]
    assert re.search(".*".join(steps), printed, re.DOTALL)
    assert re.search(
        r" s: a [\d,]+ written, lag \d+ \| b .* \| c .* \| consumer in a: [\d,]+ done, 0 repeated\n", printed
    )
    assert re.search(r"a [\d,]+ written, down \| b .* \| consumer in b: [\d,]+ done, ", printed)
    assert re.search(
        r"✓ written: [\d,]+ records: a [\d,]+, b [\d,]+, c [\d,]+\n✓ lost: 0\n✓ repeated: [\d,]+; ", printed
    )
    assert re.search(r"; dropped by the client: [1-9][\d,]*\n✓ the consumer's longest silence: \d+\.\d s\n", printed)
    assert printed.endswith("✓ verify --peer: b and c equal a for each origin\n")
    assert ended.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_did_not_come_is_lost(example):
    example.check_none_lost(["a-0", "b-0"], {"a-0": 1, "b-0": 2})
    with pytest.raises(example.ComparisonError, match="1 records are lost: b-0"):
        example.check_none_lost(["a-0", "b-0"], {"a-0": 1})
    with pytest.raises(example.ComparisonError, match="never written: c-0"):
        example.check_none_lost(["a-0"], {"a-0": 1, "c-0": 1})


def entry(**members):
    equal = {"peer": "b", "partition": 0, "origin": "a", "records": 5, "differs_at": None, "problem": ""}
    return {**equal, **members}


def test_regions_that_keep_the_same_records_compare_equal(example):
    example.check_equal([entry(records=3), entry(partition=1, records=2), entry(peer="c")], {"a": 5})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([entry(differs_at=4, problem="another value")], "regions differ: .* another value number=4"),
        ([entry(problem="nothing in common")], "were not compared"),
        ([entry(records=4)], "a peer keeps 4 of 5 records: peer=b origin=a"),
        ([entry(), entry(peer="c", records=4)], "peer=c"),
        ([], "a peer keeps 0 of 5 records"),
    ],
)
def test_regions_that_differ_are_an_error(example, found, why):
    with pytest.raises(example.ComparisonError, match=why):
        example.check_equal(found, {"a": 5})


def test_a_lost_record_is_reported_with_exit_code_1(example, monkeypatch, capsys):
    def lose(seed):
        example.check_none_lost(["a-0"], {})

    monkeypatch.setattr(example, "drive", lose)
    monkeypatch.setattr(sys, "argv", ["failover.py", "--seed", "7"])

    assert example.main() == 1
    assert "✗ 1 records are lost: a-0" in capsys.readouterr().out
