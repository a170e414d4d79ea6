"""The programs of several processes, as a stranger runs them, and proof that their comparisons can fail."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fenceline.format.batch import StoredRecord
from fenceline.model.results import ReadRecord
from tests.support.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def kv(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import replicated_kv

    return replicated_kv


@pytest.fixture
def job(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import single_reader_job

    return single_reader_job


@pytest.fixture
def count(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import exactly_once_wordcount

    return exactly_once_wordcount


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import shared_work

    return shared_work


def run(name, tmp_path, *arguments):
    command = [sys.executable, EXAMPLES / name, *arguments]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    assert list(tmp_path.iterdir()) == []
    return ended.stdout


@pytest.mark.slow
def test_a_replicated_store_survives_a_killed_and_a_stopped_leader(tmp_path):
    printed = run("replicated_kv.py", tmp_path)

    leads = r"[abc] leads, epoch (\d+), after \d+\.\d\d s"
    first = re.search(r"[abc] leads, epoch (\d+)\n", printed)
    killed = re.search(rf"[abc] was killed \(kill -9\): {leads}\n", printed)
    stopped = re.search(rf"[abc] was stopped \(SIGSTOP\): {leads}; [abc] was continued, and fenced\n", printed)
    assert first
    assert killed
    assert stopped
    assert int(first[1]) < int(killed[1]) < int(stopped[1])
    assert "late writes of the stopped leader: 20 sent, 20 refused, none in the log" in printed
    assert "replicas: a, b, c end equal, 50 keys, and as the log" in printed


@pytest.mark.slow
def test_a_job_that_is_started_again_and_again_writes_each_total_once(tmp_path):
    printed = run("single_reader_job.py", tmp_path)

    assert re.search(r"generation 2 began at [\d,]+ and severed generation 1: (SESSION_SEVERED|\w+_FENCED)\n", printed)
    assert re.search(r"generation 2 was continued, and met (SESSION_\w+|\w+_FENCED)\n", printed)
    assert "generation 1 was started again, and met STALE_GENERATION\n" in printed
    assert "the output: 6,000 totals, each reading once, in order, each total right" in printed
    assert "the group's offset: 6,000, committed by generation 3" in printed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_words_are_counted_exactly_once_by_workers_that_are_killed_again_and_again(tmp_path, seed):
    printed = run("exactly_once_wordcount.py", tmp_path, "--inputs", "1000", "--seed", str(seed))

    assert "1,000 words come into words-" in printed
    assert "committed effects: 1,000 of 1,000 words, each exactly once, in order, each total right\n" in printed
    assert "the group's offsets: at the end of each partition\n" in printed
    assert re.search(r"the workers: [1-9]\d* killed \(kill -9\), \d+ started twice; refusals: ", printed)
    assert re.search(r"records of aborted transactions: \d+, which no reader of committed ones saw\n", printed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.prove)])
def test_workers_that_are_killed_and_frozen_share_the_work_and_lose_no_record(tmp_path, seed):
    printed = run("shared_work.py", tmp_path, "--records", "1000", "--seed", str(seed))

    assert re.search(r"handled: 1,000 records, each at least once, [1-9]\d* of them again, in \d+ s\n", printed)
    assert re.search(r"each start of a partition: \d+ times, never before what was committed by then\n", printed)
    assert re.search(r"commits of removed workers: [1-9]\d* refused, none took effect\n", printed)
    assert "the group's offsets: at the end of each partition\n" in printed


@pytest.mark.slow
def test_the_word_count_has_5000_inputs_by_default():
    command = [sys.executable, EXAMPLES / "exactly_once_wordcount.py", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert "How many words there are; 5000 if left out." in " ".join(ended.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["replicated_kv.py", "single_reader_job.py", "exactly_once_wordcount.py", "shared_work.py"]
)
def test_an_unreachable_service_is_reported_in_one_line(name):
    command = [sys.executable, EXAMPLES / name, "--url", "http://127.0.0.1:1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert ended.returncode == 1
    assert ended.stdout.startswith("✗ STORE_UNAVAILABLE: ")
    assert ended.stderr == ""


LOG = [ReadRecord(n, 0, b"k%d" % (n % 2), b"%d" % n, [], 0 if n < 3 else 1, None) for n in (1, 2, 4, 5)]
STATE = {"k0": "4", "k1": "5"}


def changed(records, index, **members):
    return [dataclasses.replace(one, **members) if n == index else one for n, one in enumerate(records)]


def kv_compare(kv, log, states=None, epochs=(0, 1)):
    writes = [kv.Write("k1", "1", "a", "acknowledged", 1), kv.Write("k0", "4", "b", "acknowledged", 4)]
    writes += [kv.Write("k1", "7", "a", "refused"), kv.Write("k0", "2", "a", "unanswered")]
    reigns = [kv.Reign("a", epochs[0], 1, 0.0), kv.Reign("b", epochs[1], 4, 0.0)]
    return kv.compare(writes, reigns, {"a": STATE, "b": STATE} if states is None else states, log)


def test_a_store_that_agrees_with_the_log_compares_equal(kv):
    assert kv_compare(kv, LOG) == {"acknowledged": 2, "refused": 1, "unanswered": 1}


@pytest.mark.parametrize(
    ("log", "states", "why"),
    [
        (LOG[1:], None, "an acknowledged write is lost"),
        (changed(LOG, 2, value=b"x"), None, "an acknowledged write is lost"),
        (changed(LOG, 1, key=b"k1", value=b"7"), None, "a refused write is in the log"),
        (changed(LOG, 1, value=b"late"), None, "a late write"),
        (changed(LOG, 3, key=b"k1", value=b"1"), None, "twice"),
        (changed(LOG, 2, topic_epoch=0), None, "a node wrote that did not lead"),
        (changed(LOG, 1, topic_epoch=1), None, "a node wrote that did not lead"),
        (LOG, {"a": STATE, "b": {"k0": "4"}}, "replica b differs"),
    ],
    ids=["lost", "changed", "refused", "late", "twice", "late epoch", "early epoch", "replica"],
)
def test_a_store_that_is_otherwise_does_not(kv, log, states, why):
    with pytest.raises(kv.ComparisonError, match=why):
        kv_compare(kv, log, states)


@pytest.mark.parametrize("epochs", [(1, 1), (1, 0)])
def test_an_epoch_that_two_led_in_is_seen(kv, epochs):
    with pytest.raises(kv.ComparisonError, match="an epoch was given twice, or went back"):
        kv_compare(kv, LOG, epochs=epochs)


READINGS = [StoredRecord(n, 0, b"s", b"2", []) for n in range(4)]
TOTALS = [
    StoredRecord(5 + n, 0, b"s", json.dumps({"total": 2 * n + 2, "reading": n, "generation": 1 + n // 2}).encode(), [])
    for n in range(4)
]


def said(**members):
    return json.dumps({"total": 4, "reading": 1, "generation": 1, **members}).encode()


def test_an_output_with_each_reading_once_compares_equal(job):
    assert job.compare(READINGS, TOTALS) == {1: 2, 2: 2}


@pytest.mark.parametrize(
    ("totals", "why"),
    [
        (TOTALS[:3], "lacks readings"),
        ([*TOTALS, TOTALS[1]], r"twice: \[1\]"),
        ([TOTALS[1], TOTALS[0], *TOTALS[2:]], "out of order"),
        (changed(TOTALS, 1, value=said(total=5)), "a total is wrong"),
        (changed(TOTALS, 1, value=said(generation=3)), "a generation wrote after a later one"),
    ],
    ids=["lost", "twice", "order", "total", "zombie"],
)
def test_an_output_that_is_otherwise_does_not(job, totals, why):
    with pytest.raises(job.ComparisonError, match=why):
        job.compare(READINGS, totals)


COUNTED = [(b"a", 1), (b"b", 1), (b"a", 2), (b"a", 3)]  # of each word in order: the word and its total
WORDS = {0: [StoredRecord(n, 0, word, None, []) for n, (word, _) in enumerate(COUNTED)], 1: []}
COUNTS = [
    StoredRecord(3 * n, 0, word, json.dumps({"total": total, "word": n, "by": 1 + n // 2}).encode(), [])
    for n, (word, total) in enumerate(COUNTED)
]


def counted(**members):
    return json.dumps({"total": 2, "word": 2, "by": 2, **members}).encode()


def test_a_count_with_each_word_once_compares_equal(count):
    assert count.compare(WORDS, {0: COUNTS, 1: []}) == {b"a": 3, b"b": 1}


@pytest.mark.parametrize(
    ("totals", "why"),
    [
        ({0: COUNTS[:3], 1: []}, r"not counted: partition=0 offsets=\[3\]"),
        ({0: [*COUNTS, COUNTS[1]], 1: []}, r"twice: partition=0 offsets=\[1\]"),
        ({0: COUNTS, 1: COUNTS[:1]}, "that are not there: partition=1"),
        ({0: [COUNTS[1], COUNTS[0], *COUNTS[2:]], 1: []}, "out of order"),
        ({0: changed(COUNTS, 2, value=counted(total=3)), 1: []}, "a total is wrong"),
        ({0: changed(COUNTS, 2, key=b"b"), 1: []}, "a total is wrong"),
        ({0: changed(COUNTS, 2, value=counted(by=3)), 1: []}, "a worker wrote after a later start"),
    ],
    ids=["lost", "twice", "foreign", "order", "total", "word", "zombie"],
)
def test_a_count_that_is_otherwise_does_not(count, totals, why):
    with pytest.raises(count.ComparisonError, match=why):
        count.compare(WORDS, totals)


def shared_compare(shared, **changed):
    begun = [shared.Begun("A", 0, 1, 1.0), shared.Begun("B", 0, 5, 9.0)]
    done = [shared.Done("A", 0, n, 1) for n in range(3)] + [shared.Done("B", 0, n, 5) for n in (2, 3)]
    committed = [shared.Committed("A", 0, 1, 1, 2.0), shared.Committed("A", 0, 2, 1, 3.0)]
    committed += [shared.Committed("B", 0, 4, 5, 9.5)]
    story = {"begun": begun, "done": done, "committed": committed}
    return shared.compare({0: 4, 1: 0}, **{name: changed.get(name, lambda one: one)(of) for name, of in story.items()})


def test_shared_work_with_each_record_compares_equal(shared):
    assert shared_compare(shared) == 1


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"done": lambda done: done[1:]}, r"not handled: \[\(0, 0\)\]"),
        ({"done": lambda done: [done[1], done[0], *done[2:]]}, "out of order"),
        ({"committed": lambda all_: [all_[0]._replace(offset=3), *all_[1:]]}, "began before what was committed"),
        ({"done": lambda done: [*done[:4], done[4]._replace(worker="C")]}, "two workers had a partition"),
        ({"begun": lambda begun: [*begun, begun[1]._replace(worker="C")]}, "two workers had a partition"),
        ({"committed": lambda all_: [all_[0]._replace(at=9.1), *all_[1:]]}, "a removed worker's commit took effect"),
    ],
    ids=["lost", "order", "before", "two did", "two began", "zombie"],
)
def test_shared_work_that_is_otherwise_does_not(shared, changed, why):
    with pytest.raises(shared.ComparisonError, match=why):
        shared_compare(shared, **changed)
