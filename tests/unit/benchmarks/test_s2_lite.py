"""The comparison with s2-lite: what it sends, its rows, and its line where there is none."""

from __future__ import annotations

import signal
import sys
from functools import partial

import pytest

from benchmarks import s2_lite
from benchmarks.one_server import LARGE, SMALL
from benchmarks.thin_client import Post

POSTS = {who: Post("", who, b"", {}) for who in (s2_lite.OURS, s2_lite.THEIRS)}


def test_without_a_program_one_line_says_how_to_name_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(s2_lite.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "argv", ["s2_lite"])
    assert s2_lite.main() == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "not measured" in err
    assert "cargo install --locked s2-lite" in err
    assert s2_lite.VARIABLE in err


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"ab", b"\x0a\x04\x1a\x02ab"),
        (b"x" * 300, b"\x0a\xaf\x02\x1a\xac\x02" + b"x" * 300),
    ],
)
def test_an_append_is_one_record_in_protobuf(body: bytes, message: bytes) -> None:
    assert s2_lite.append_input(body) == message


def test_its_largest_batch_is_within_the_limit_of_s2() -> None:
    assert LARGE + 8 <= 1024 * 1024  # S2 counts 8 bytes for a record beside its body
    post = s2_lite.s2_post("http://here", "size", LARGE)
    assert post.path == "/v1/streams/size/records"
    assert post.headers["s2-basin"] == s2_lite.BASIN


def test_both_take_turns_and_a_ratio_is_the_median_of_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    turns: list[tuple[str, int]] = []
    stopped: set[str] = set()
    rates = {("fenceline", 1): [10, 30, 20], ("s2-lite", 1): [5, 10, 20]}

    def load(post: Post, clients: int, seconds: float) -> float:
        turns.append((post.path, clients))
        assert stopped == {ours, theirs} - {post.path}, "the other one is stopped meanwhile"
        return rates.get((post.path, clients), [8, 8, 8])[sum(turn == turns[-1] for turn in turns) - 1]

    def send(who: str, sent: signal.Signals) -> None:
        {signal.SIGSTOP: stopped.add, signal.SIGCONT: stopped.remove}[sent](who)

    signals = {who: partial(send, who) for who in POSTS}
    ours, theirs = s2_lite.OURS, s2_lite.THEIRS
    rows = s2_lite.compare("1 KiB", SMALL, POSTS, signals, 1.0, 3, load)
    assert turns[:6] == [(theirs, 1), (ours, 1), (ours, 1), (theirs, 1), (theirs, 1), (ours, 1)]
    found = {row.what: (row.value, row.goal) for row in rows}
    assert found["fenceline ÷ s2-lite, 1 client, 1 KiB"] == (2, "≥ 2")  # of 2, 3 and 1
    assert found["fenceline ÷ s2-lite, 8 clients, 1 KiB"] == (1, "≥ 1.2")
    assert found["acknowledged appends, fenceline, 1 client, 1 KiB"] == (20, "")
    turns.clear()
    large = {row.what: row for row in s2_lite.compare("1 MiB", LARGE, POSTS, signals, 1.0, 3, load)}
    assert large["acknowledged, s2-lite, 8 clients, 1 MiB"].unit == "MiB/s"
    assert large["fenceline ÷ s2-lite, 8 clients, 1 MiB"].goal == "≥ 3"
