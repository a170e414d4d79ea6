"""A replay: each record once, with all that it had, whatever dies, and the same records in every run of a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.client import Client
from fenceline.limits import INT64_MAX
from fenceline.model.record import Record
from fenceline.model.transaction import OnceMark
from fenceline_spark.jobs import forget, replay, replaying
from fenceline_spark.jobs.replay_plan import ReplayError, ReplayPlan, settled
from fenceline_spark.jobs.session import JobError, one_line_errors
from fenceline_testing import FencelineServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T_MS = 1_700_000_000_000


@pytest.fixture
def target(client: Client, topic: str) -> str:
    client.create_topic(f"{topic}-to", partitions=2)
    return f"{topic}-to"


@pytest.fixture
def run(spark: SparkSession, server: FencelineServer, topic: str, target: str) -> Any:
    """Return a function that replays the test's topic, a few offsets in a version, under the topic's name."""

    def run(**options: Any) -> Any:
        given = {"name": topic, "endpoint": server.url, "offsets_per_version": 10, **options}
        return replay(spark, topic, target, **given)

    return run


def fill(client: Client, topic: str, partition: int, count: int) -> None:
    records = [Record(b"v%d" % n, b"k%d" % n, (("h", b"%d" % n),) if n % 2 else (), T_MS - n) for n in range(count)]
    client.produce(topic, partition, records, compression="gzip")


def shown(client: Client, topic: str, partition: int) -> list[tuple[Any, ...]]:
    page = client.read(topic, partition, offset=0, isolation="read_committed", max_records=1_000)
    return [(r.timestamp, r.key, r.value, [*r.headers]) for r in page.records]


def test_a_version_that_another_run_has_raised_meanwhile_is_done(client: Client, topic: str) -> None:
    client.end_transactions([], "commit", once=OnceMark(topic, 0, "another run"))
    replaying._finish(client, topic, 0)
    assert client.once(topic).note == "another run"
    replaying._finish(client, topic, 1)
    assert client.once(topic).version == 1


def test_a_replay_keeps_partition_order_key_headers_and_timestamp(
    client: Client, topic: str, target: str, run: Any
) -> None:
    fill(client, topic, 0, 25)
    client.produce(topic, 1, [Record(None, b"deleted", (("n", None),)), Record(b"", None)])
    done = run()
    assert (done.versions, done.done_before) == (3, 0)
    for partition in (0, 1):
        assert shown(client, target, partition) == shown(client, topic, partition)
    end = client.offsets(target, 0).bounds.next_offset
    again = run()
    assert (again.versions, again.written) == (3, 0)
    assert client.offsets(target, 0).bounds.next_offset == end, "a run of a finished replay writes nothing"


def test_a_run_continues_what_another_one_began_with_the_same_records(
    client: Client, topic: str, target: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has grown between the runs. The first one settled what the name copies."""
    fill(client, topic, 0, 25)
    write = replaying._write

    def dies_in_the_second(rows: Any, *arguments: Any) -> None:
        if arguments[2] == 1:
            raise KeyboardInterrupt
        write(rows, *arguments)

    monkeypatch.setattr(replaying, "_write", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(shown(client, target, 0)) == 8
    monkeypatch.undo()
    fill(client, topic, 0, 25)
    assert run().done_before == 1
    assert shown(client, target, 0) == shown(client, topic, 0)[:25]


def test_a_condition_chooses_records_and_a_version_without_any_is_not_read_again(
    client: Client, topic: str, target: str, run: Any
) -> None:
    fill(client, topic, 0, 20)
    assert run(where="offset >= 10 AND size(headers) = 1").written == 2
    assert [value for _, _, value, _ in shown(client, target, 0)] == [b"v%d" % n for n in range(11, 20, 2)]
    with pytest.raises(JobError, match="nonsense"), one_line_errors():
        run(name=f"{topic}-2", where="nonsense > 3")


def test_a_range_is_what_was_asked_for(client: Client, topic: str, target: str, run: Any) -> None:
    fill(client, topic, 0, 20)
    fill(client, topic, 1, 20)
    run(ranges={0: (3, 7), 1: (5, 5)})
    assert [value for _, _, value, _ in shown(client, target, 0)] == [b"v%d" % n for n in range(3, 7)]
    assert shown(client, target, 1) == []


def test_an_impossible_replay_is_refused_before_any_write(
    spark: SparkSession, server: FencelineServer, client: Client, topic: str, target: str, run: Any
) -> None:
    fill(client, topic, 0, 5)
    fill(client, topic, 1, 5)
    client.create_topic(f"{topic}-one")
    refused: list[tuple[str, str, dict[str, Any]]] = [
        (topic, "into itself", {}),
        (target, "streaming queries", {"name": "spark.x"}),
        (target, "not kept, or not decided", {"ranges": {0: (0, 6)}}),
        (target, "no such partition", {"ranges": {7: (0, 6)}}),
        (f"{topic}-one", "as many partitions", {}),
    ]
    for to, message, options in refused:
        with pytest.raises(ReplayError, match=message):
            replay(spark, topic, to, **{"name": topic, "endpoint": server.url, **options})
    run()
    for options in ({"where": "true"}, {"ranges": {0: (0, 1)}}):
        with pytest.raises(ReplayError, match="another replay has this name"):
            run(**options)


def test_a_name_that_another_application_writes_under_is_refused(
    client: Client, topic: str, target: str, run: Any
) -> None:
    """Its version is not the replay's, so the replay would end as if it had been written."""
    fill(client, topic, 0, 5)
    for app_id in (topic, f"{topic}-2.plan.0"):
        client.end_transactions([], "commit", once=OnceMark(app_id, 7, "nightly"))
    for name, message in ((topic, "another application"), (f"{topic}-2", "another replay")):
        with pytest.raises(ReplayError, match=message):
            run(name=name)
    assert shown(client, target, 0) == []


def test_a_name_that_no_replay_can_have_is_refused() -> None:
    for name in ("", "..", "a/b", "a\nb", "n" * 240):
        with pytest.raises(ReplayError, match="a replay's name has 1 to 239 bytes"):
            replaying.check_names("a", "b", name)
    replaying.check_names("a", "b", "n" * 239)


def test_records_that_were_deleted_between_two_runs_are_named_with_a_way_out(
    client: Client, topic: str, target: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 0, 25)
    write = replaying._write

    def then_trimmed(*arguments: Any) -> None:
        write(*arguments)
        client.trim(topic, 0, 12)

    monkeypatch.setattr(replaying, "_write", then_trimmed)
    with pytest.raises(ReplayError, match=r"under another name: .*offset=8 versions_written=1 versions=3"):
        run()
    assert len(shown(client, target, 0)) == 8


def test_a_name_that_is_forgotten_may_be_used_anew(client: Client, topic: str, target: str, run: Any) -> None:
    fill(client, topic, 0, 5)
    run()
    mark = forget(client, topic)
    assert mark is not None
    assert mark.version == 0
    assert forget(client, topic) is None
    assert run(ranges={0: (0, 2)}).written == 1
    assert len(shown(client, target, 0)) == 7


def test_a_query_is_forgotten_by_its_id_alone(client: Client) -> None:
    from fenceline.model.transaction import OnceMark

    client.end_transactions([], "commit", once=OnceMark("spark.1b4e28ba", 7))
    mark = forget(client, "1b4e28ba")
    assert mark is not None
    assert (mark.app_id, mark.version) == ("spark.1b4e28ba", 7)
    assert client.once("spark.1b4e28ba").version == -1


@pytest.mark.parametrize("count", [243, 249])
def test_an_application_with_a_long_id_is_forgotten(client: Client, count: int) -> None:
    app_id = "n" * count
    client.end_transactions([], "commit", once=OnceMark(app_id, 7))
    mark = forget(client, app_id)
    assert mark is not None
    assert mark.version == 7
    assert forget(client, app_id) is None


OFFSETS = st.integers(0, INT64_MAX // 2)
RANGES = st.dictionaries(
    st.integers(0, 130), st.tuples(OFFSETS, OFFSETS).map(lambda p: (p[0], p[0] + p[1])), max_size=130
)


@given(ranges=RANGES, versions=st.integers(1, 9))
def test_the_versions_of_a_plan_hold_each_offset_once(ranges: dict[int, tuple[int, int]], versions: int) -> None:
    plan = ReplayPlan(ranges, versions)
    for number, (start, end) in ranges.items():
        parts = [plan.part(version)[number] for version in range(versions) if number in plan.part(version)]
        edges = [start, *(edge for part in parts for edge in part), end]
        assert edges[0::2] == edges[1::2]


def test_the_plan_of_many_partitions_is_settled_once_for_all_runs(client: Client) -> None:
    """By several marks. The run that settled the first one died; the ranges have grown since."""
    ranges = {number: (INT64_MAX // 2 - number, INT64_MAX - number) for number in range(100)}
    asked: list[int] = []

    def make() -> ReplayPlan:
        asked.append(1)
        return ReplayPlan(ranges, 7)

    assert settled(client, "many", "x", make) == ReplayPlan(ranges, 7)
    assert settled(client, "many", "x", make) == ReplayPlan(ranges, 7)
    assert len(asked) == 1
    client.forget_once("many.plan.2")
    ranges = {number: (start, end + 1) for number, (start, end) in ranges.items()}
    found = settled(client, "many", "x", make)
    assert [found.ranges[n] == ranges[n] for n in (0, 79, 80, 99)] == [False, False, True, True]
    assert settled(client, "many", "x", make) == found
    with pytest.raises(ReplayError, match="another replay has this name"):
        settled(client, "many", "y", make)
