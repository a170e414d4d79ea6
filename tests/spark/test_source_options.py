"""Each option of the source, and each value it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from fenceline.errors import InvalidRequestError
from fenceline_spark.source.offsets import PartitionOffsets
from fenceline_spark.source.options import OPTIONS, At, SourceOptions

GIVEN = {"endpoint": "http://service", "subscribe": "a"}
TIMES = '{"a":{"0":5}}'


def of(environ: Mapping[str, str] | None = None, /, **given: str) -> SourceOptions:
    return SourceOptions.of({**GIVEN, **given}, environ or {})


def without(*names: str, **given: str) -> SourceOptions:
    return SourceOptions.of({k: v for k, v in {**GIVEN, **given}.items() if k not in names}, {})


def test_defaults_are_those_of_the_table() -> None:
    options = of()
    assert options.starting is None
    assert options.ending is None
    assert options.is_committed
    assert options.fails_on_loss
    assert options.is_strict_start
    assert options.included == frozenset()
    assert options.max_delay_ms == 900_000
    assert (options.origin, options.progress_group, options.region) == (None, None, None)
    assert (options.min_partitions, options.max_records, options.max_offsets, options.min_offsets) == (None,) * 4


def test_names_and_words_are_read_in_any_case() -> None:
    options = SourceOptions.of(
        {"ENDPOINT": "http://service", "subscribe": "a", "STARTINGOFFSETS": "Earliest", "includeheaders": "TRUE"}, {}
    )
    assert options.starting == "earliest"
    assert options.included == frozenset({"includeHeaders"})


def test_the_endpoint_is_the_drivers_unless_the_option_gives_one() -> None:
    environ = {"FENCELINE_URL": "http://driver", "FENCELINE_AWS_REGION": "eu-west-1"}
    driver = SourceOptions.of({"subscribe": "a"}, environ)
    assert (driver.endpoint, driver.region) == ("http://driver", "eu-west-1")
    option = of(environ, region="us-east-1")
    assert (option.endpoint, option.region) == ("http://service", "us-east-1")


def test_a_read_without_an_endpoint_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="give the option endpoint, or set FENCELINE_URL"):
        SourceOptions.of({"subscribe": "a"}, {})


@pytest.mark.parametrize(
    "text", ["localhost:8080", "127.0.0.1:8080", "orders", "ftp://service", "http://", "http://a:port", "http://[::1"]
)
def test_an_endpoint_that_is_no_url_is_refused_before_the_first_request(text: str) -> None:
    for given, environ in (({"endpoint": text}, {}), ({}, {"FENCELINE_URL": text})):
        with pytest.raises(InvalidRequestError, match="endpoint takes the URL of the service") as caught:
            SourceOptions.of({"subscribe": "a", **given}, environ)
        assert caught.value.detail.endswith(f"endpoint={text}")


@pytest.mark.parametrize("text", ["http://127.0.0.1:8080/", "https://x.execute-api.eu-west-1.amazonaws.com/stage"])
def test_an_endpoint_may_have_a_path(text: str) -> None:
    assert SourceOptions.of({"subscribe": "a", "endpoint": text}, {}).endpoint == text


def test_topics_are_named_in_one_of_three_ways() -> None:
    assert of(subscribe=" b, a,a ").subscribed.topics == ("a", "b")
    assert without("subscribe", assign='{"a":[1,0]}').subscribed.assigned == {"a": (0, 1)}
    pattern = without("subscribe", subscribePattern="a.*").subscribed.pattern
    assert pattern is not None
    assert pattern.fullmatch("ab")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("subscribe", " , ", "names of topics"),
        ("subscribe", "a/b", "no topic can have the name 'a/b'"),
        ("assign", '{"a":[]}', "list of partitions"),
        ("assign", '{"a":[0,0]}', "twice"),
        ("assign", '{"a":[-1]}', "no whole number from 0 on"),
        ("assign", '{"a":[true]}', "no whole number from 0 on"),
        ("assign", "[]", "JSON object"),
        ("assign", "{}", "names no topic"),
        ("assign", "{", "no JSON"),
        ("subscribePattern", "(", "no regular expression"),
        ("subscribePattern", " ", "a regular expression"),
        ("endpoint", "", "the URL of the service"),
        ("region", " ", "the AWS region"),
        ("startingOffsets", "newest", "earliest, latest (of a stream), or JSON"),
        ("startingOffsets", '{"a":{"0":-3}}', "no whole number from -2 on"),
        ("startingOffsets", '{"a":{"0":1.0}}', "no whole number"),
        ("startingOffsets", '{"a":{"0":9223372036854775808}}', "no whole number"),
        ("startingOffsets", '{"a":{"00":1}}', "no number of a partition"),
        ("startingOffsets", '{"a":{"0":1,"0":2}}', "comes twice"),
        ("startingOffsets", '{"a":{"0":1},"$other":{}}', "no topic can have the name '$other'"),
        ("startingOffsets", '{"a":{"0":1},"$topic_ids":{"b":"x"}}', "$topic_ids"),
        ("startingOffsets", "{}", "names no topic"),
        ("endingOffsets", "earliest", "cannot end at the earliest"),
        ("endingOffsets", '{"a":{"0":-2}}', "is no end"),
        ("startingTimestamp", "-1", "a time in ms"),
        ("startingTimestamp", "today", "a time in ms"),
        ("endingTimestamp", "1.5", "a time in ms"),
        ("startingOffsetsByTimestamp", '{"a":5}', "JSON object"),
        ("endingOffsetsByTimestamp", '{"a":{"0":-1}}', "no whole number from 0 on"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
        ("isolation", "committed", "read_committed or read_uncommitted"),
        ("minPartitions", "0", "a whole number from 1 on"),
        ("maxRecordsPerPartition", "many", "a whole number from 1 on"),
        ("maxOffsetsPerTrigger", "0", "a whole number from 1 on"),
        ("minOffsetsPerTrigger", "-5", "a whole number from 1 on"),
        ("maxTriggerDelay", "15 weeks", "30s, 15m or 1h"),
        ("failOnDataLoss", "no", "true or false"),
        ("includeHeaders", "1", "true or false"),
        ("includeTopicEpoch", "", "true or false"),
        ("includeOrigin", "yes", "true or false"),
        ("origin", "eu-west-1", "own"),
        ("narrowByFilters", "yes", "true or false"),
        ("progressGroup", "a/b", "the name of a group"),
    ],
)
def test_a_value_that_an_option_does_not_take_is_refused_by_its_name(name: str, text: str, words: str) -> None:
    others = {k: v for k, v in GIVEN.items() if not (name in ("assign", "subscribePattern") and k == "subscribe")}
    with pytest.raises(InvalidRequestError, match=re.escape(words)) as caught:
        SourceOptions.of({**others, name.lower(): text}, {})
    assert caught.value.field == name
    assert name in caught.value.detail


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"maxoffsetpertrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"zzz": "1"}, "the options are endpoint, region, subscribe"),
        ({"kafka.bootstrap.servers": "x:9092"}, "endpoint takes its place"),
        ({"bootstrap.servers": "x:9092"}, "endpoint takes its place"),
        ({"isolation.level": "read_committed"}, "isolation takes its place"),
        ({"kafka.group.id": "g"}, "progressGroup"),
        ({"groupidprefix": "g"}, "progressGroup"),
        ({"kafka.isolation.level": "read_committed"}, "isolation takes its place"),
        ({"kafka.security.protocol": "SSL"}, "leave it out"),
        ({"fetchoffset.numretries": "3"}, "leave it out"),
        ({"kafkaconsumer.polltimeoutms": "3"}, "leave it out"),
        ({"path": "a"}, "subscribe"),
        ({"topic": "a"}, "subscribe"),
        ({"owner": "me"}, "CREATE TEMPORARY VIEW"),
    ],
)
def test_an_option_that_there_is_not_is_refused_with_the_one_to_use(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(words)) as caught:
        of(**given)
    assert caught.value.detail.endswith(f"option={next(iter(given))}")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"assign": '{"a":[0]}'}, "subscribe and assign exclude each other"),
        ({"subscribePattern": "a"}, "subscribe and subscribePattern exclude each other"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingOffsets and startingTimestamp exclude"),
        ({"startingTimestamp": "1", "startingOffsetsByTimestamp": TIMES}, "exclude each other"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "endingOffsets and endingTimestamp exclude"),
        ({"endingTimestamp": "1", "endingOffsetsByTimestamp": TIMES}, "exclude each other"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "needs startingTimestamp or startingOffsetsByTimestamp"),
        ({"maxTriggerDelay": "1m"}, "needs minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not exceed maxOffsetsPerTrigger"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "must not lie after endingTimestamp"),
        ({"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'}, "must not lie after endingOffsets"),
        ({"startingOffsets": '{"b":{"0":5}}'}, "must name each topic that is read, and no other: missing=a not_read=b"),
        ({"endingOffsets": '{"a":{"0":5},"b":{"0":1}}'}, "and no other: not_read=b"),
        ({"startingOffsetsByTimestamp": '{"b":{"0":5}}'}, "startingOffsetsByTimestamp must name each topic"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(words)):
        of(**given)


def test_a_read_names_its_topics() -> None:
    with pytest.raises(InvalidRequestError, match="give one of the options subscribe, assign or subscribePattern"):
        without("subscribe")


def test_offsets_must_name_the_partitions_that_are_assigned() -> None:
    with pytest.raises(InvalidRequestError, match=r"no other: topic=a missing=1$"):
        without("subscribe", assign='{"a":[0,1]}', startingOffsets='{"a":{"0":1}}')
    with pytest.raises(InvalidRequestError, match=r"no other: topic=a missing=1 not_read=2,3$"):
        without("subscribe", assign='{"a":[0,1]}', startingOffsets='{"a":{"0":1,"2":1,"3":1}}')


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_a_word_that_is_no_offset_is_not_read_as_json(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"\(-1 latest, -2 earliest\): {name}=earlyest$"):
        of(**{name: "earlyest"})


def test_edges_are_words_offsets_or_times() -> None:
    assert of(startingOffsets="latest").starting == "latest"
    assert of(startingOffsets='{"a":{"0":-2}}').starting == PartitionOffsets({"a": {0: -2}})
    checkpoint = of(startingOffsets='{"a":{"0":3},"$topic_ids":{"a":"id"}}').starting
    assert checkpoint == PartitionOffsets({"a": {0: 3}}, {"a": "id"})
    assert of(startingTimestamp="7").starting == At(everywhere=7)
    by_time = of(startingOffsetsByTimestamp=TIMES, startingOffsetsByTimestampStrategy="latest")
    assert by_time.starting == At(each={"a": {0: 5}})
    assert not by_time.is_strict_start
    assert of(endingOffsets='{"a":{"0":-1}}').ending == PartitionOffsets({"a": {0: -1}})
    assert of(endingTimestamp="9").ending == At(everywhere=9)
    assert of(endingOffsetsByTimestamp=TIMES).ending == At(each={"a": {0: 5}})


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("15min", 900_000), ("2h", 7_200_000), ("7", 7)]
)
def test_a_delay_is_a_time_as_spark_writes_it(text: str, ms: int) -> None:
    assert of(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_delay_ms == ms


def test_a_stream_refuses_to_narrow_by_filters() -> None:
    assert of(narrowByFilters="true").for_batch().narrows_by_filters
    with pytest.raises(InvalidRequestError, match="narrowByFilters is an option of a batch"):
        of(narrowByFilters="true").for_stream()


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "progressGroup"])
def test_a_batch_refuses_what_only_a_stream_takes(name: str) -> None:
    options = of(**{name: "1"})
    assert options.for_stream() is options
    with pytest.raises(InvalidRequestError, match=f"{name} is an option of readStream"):
        options.for_batch()


@pytest.mark.parametrize("start", ["latest", '{"a":{"0":-1}}'])
def test_a_batch_cannot_start_at_the_latest_offset(start: str) -> None:
    options = of(startingOffsets=start)
    assert options.for_stream() is options
    with pytest.raises(InvalidRequestError, match=r"a batch cannot start at the latest offset; .*\"1\":-2"):
        options.for_batch()


@pytest.mark.parametrize(
    ("name", "text"), [("endingOffsets", "latest"), ("endingTimestamp", "1"), ("endingOffsetsByTimestamp", TIMES)]
)
def test_a_stream_refuses_an_end(name: str, text: str) -> None:
    options = of(**{name: text})
    assert options.for_batch() is options
    with pytest.raises(InvalidRequestError, match=f"{name} is an option of a batch"):
        options.for_stream()


def test_a_task_gets_the_given_options() -> None:
    reading = of(isolation="read_uncommitted", origin="own", failOnDataLoss="false", region="r").reading(("value",))
    assert (reading.endpoint, reading.region, reading.columns) == ("http://service", "r", ("value",))
    assert (reading.is_committed, reading.origin, reading.fails_on_loss) == (False, "own", False)


def test_every_option_has_a_test_of_a_wrong_value() -> None:
    marks = test_a_value_that_an_option_does_not_take_is_refused_by_its_name.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in marks[0].args[1]} == {option.name for option in OPTIONS}
