"""Verify in pages: each kind of damage is a finding, wherever a page begins (contract, "Read")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import OffsetOutOfRangeError, StoreUnavailableError
from fenceline.format import keys
from fenceline.model.results import VerifiedSegments
from fenceline.ports import ObjectSummary
from tests.support.damage import replace_segment, segment_key
from tests.support.service import TOPIC, LogBuilder, Service, append, data, serve

APPENDS = 12  # segments of two records


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    made.log.topics.create(TOPIC)
    for n in range(APPENDS):
        append(made.log, f"a{n}", f"b{n}", producer=(7, 0, 2 * n))
    made.log.partitions.checkpoint(TOPIC, 0)
    yield made
    made.close()


def flip(body: bytes, _: dict[str, str]) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


def page(service: Service, offset: int | None = None, limit: int = 100) -> VerifiedSegments:
    return service.another().partitions.verify(TOPIC, 0, offset=offset, limit=limit)


def walk(service: Service, limit: int) -> tuple[int, list[tuple[str, int]], int]:
    """Verify page by page; return how many segments and findings there were, and where the walk ended."""
    position, segments, findings = None, 0, []
    for _ in range(4 * APPENDS):
        found = page(service, position, limit)
        segments += found.segments
        findings += [(one.key, one.offset) for one in found.findings]
        if not found.has_more:
            return segments, findings, found.position
        assert position is None or found.position > position
        position = found.position
    raise AssertionError("the walk has no end")


def places(service: Service, *bases: int) -> list[tuple[str, int]]:
    return [(segment_key(service, base), base) for base in bases]


def test_a_whole_log_has_no_findings(service: Service) -> None:
    assert page(service) == VerifiedSegments(2 * APPENDS, APPENDS, 2 * APPENDS, [], has_more=False)
    assert page(service, limit=5) == VerifiedSegments(10, 5, 10, [], has_more=True)


@pytest.mark.parametrize("offset", range(2 * APPENDS))
def test_a_check_from_any_offset_finds_nothing_in_a_log_that_is_whole(service: Service, offset: int) -> None:
    assert page(service, offset, 1) == VerifiedSegments(
        offset // 2 * 2 + 2, 1, 2, [], has_more=offset < 2 * APPENDS - 2
    )


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
@pytest.mark.parametrize("damaged", [(0,), (10,), (2 * APPENDS - 2,), (4, 6), (0, 8, 20)])
def test_each_damaged_segment_is_a_finding_and_no_other(service: Service, damaged: tuple[int, ...], limit: int) -> None:
    for base in damaged:
        replace_segment(service, base, flip)
    segments, findings, _ = walk(service, limit)
    assert (segments, findings) == (APPENDS, places(service, *damaged))


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("name", ["write-id", "appended-at", "records", "bytes", "max-timestamp"])
def test_changed_metadata_is_a_finding(service: Service, name: str, limit: int) -> None:
    def change(body: bytes, metadata: dict[str, str]) -> bytes:
        metadata[name] = {"write-id": "0" * 32}.get(name, "17")
        return body

    replace_segment(service, 10, change)
    assert walk(service, limit)[1] == places(service, 10)


def test_a_changed_chain_value_is_a_finding_there_and_after_it(service: Service) -> None:
    def change(body: bytes, metadata: dict[str, str]) -> bytes:
        metadata["chain"] = "0" * 64
        return body

    replace_segment(service, 10, change)
    assert walk(service, 100)[1] == places(service, 10, 12)
    assert walk(service, 1)[1] == places(service, 10, 12)


def test_a_segment_without_metadata_is_one_finding(service: Service) -> None:
    def change(body: bytes, metadata: dict[str, str]) -> bytes:
        metadata.clear()
        return body

    replace_segment(service, 10, change)
    assert walk(service, 100)[1] == walk(service, 1)[1] == places(service, 10)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
@pytest.mark.parametrize("gone", [(0,), (10,), (10, 12), (4, 16)])
def test_a_missing_segment_is_a_finding_with_the_name_that_it_had(
    service: Service, gone: tuple[int, ...], limit: int
) -> None:
    for base in gone:
        service.objects.store.delete(segment_key(service, base))
    segments, findings, end = walk(service, limit)
    firsts = [base for base in gone if base - 2 not in gone]
    assert (segments, findings, end) == (APPENDS - len(gone), places(service, *firsts), 2 * APPENDS)


@pytest.mark.parametrize("kept", [0, 3, APPENDS - 1])
def test_an_end_that_is_missing_is_a_finding_since_the_head_names_it(service: Service, kept: int) -> None:
    for base in range(2 * kept, 2 * APPENDS, 2):
        service.objects.store.delete(segment_key(service, base))
    segments, findings, _ = walk(service, 100)
    assert (segments, findings) == (kept, places(service, 2 * kept))


@pytest.mark.parametrize("limit", [1, 100])
def test_two_segments_of_one_offset_are_a_finding(service: Service, limit: int) -> None:
    stored = service.objects.store.get(segment_key(service, 10))
    service.objects.store.create(segment_key(service, 11), stored.body, stored.metadata)
    segments, findings, _ = walk(service, limit)
    assert (segments, findings) == (APPENDS + 1, places(service, 11))


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("at", ["0003x.log", "99zzz.log"])
def test_an_object_that_is_no_segment_is_a_finding(service: Service, at: str, limit: int) -> None:
    key = segment_key(service, 4).replace("00004.log", at)
    service.objects.store.create(key, b"", {})
    segments, findings, end = walk(service, limit)
    assert key in [one for one, _ in findings]
    assert (segments, end) == (APPENDS, 2 * APPENDS)


def test_an_offset_beyond_the_log_is_out_of_range_and_its_end_is_empty(service: Service) -> None:
    assert page(service, 2 * APPENDS) == VerifiedSegments(2 * APPENDS, 0, 0, [], has_more=False)
    for offset in (2 * APPENDS + 1, 2**63 - 1):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            page(service, offset)
        assert raised.value.problem()["next_offset"] == 2 * APPENDS


def test_an_empty_log_is_whole() -> None:
    made = serve()
    made.log.topics.create(TOPIC)
    assert page(made) == VerifiedSegments(0, 0, 0, [], has_more=False)
    with pytest.raises(OffsetOutOfRangeError):
        page(made, 1)
    made.close()


@pytest.mark.parametrize("is_collected", [False, True])
@pytest.mark.parametrize("log_start", [9, 10])
def test_a_trimmed_log_is_checked_from_its_log_start(service: Service, log_start: int, is_collected: bool) -> None:
    def change(body: bytes, metadata: dict[str, str]) -> bytes:
        metadata["records"] = "3"
        return body

    service.log.partitions.trim(TOPIC, 0, log_start)
    first = log_start // 2 * 2
    if is_collected:
        for base in range(0, first, 2):
            service.objects.store.delete(segment_key(service, base))
    whole = VerifiedSegments(2 * APPENDS, APPENDS - first // 2, 2 * APPENDS - first, [], has_more=False)
    assert page(service) == page(service, 0) == whole
    replace_segment(service, first, change)
    assert [one.offset for one in page(service).findings] == [first]


def test_a_damaged_state_is_a_finding(service: Service) -> None:
    service.log.partitions.trim(TOPIC, 0, 10)
    key = keys.state_key(service.topic_id(), 0, 10)
    service.objects.store.delete(key)
    service.objects.store.create(key, b"{}", {})
    found = page(service)
    assert [(one.key, one.offset) for one in found.findings] == [(key, 10)]
    assert (found.segments, found.has_more) == (APPENDS - 5, False)


def test_a_late_create_where_the_log_start_has_passed_is_no_finding(service: Service) -> None:
    def collect(call: Callable[[], Any]) -> Any:
        if service.log.partitions.offsets(TOPIC, 0).log_start_offset == 0:
            service.log.partitions.trim(TOPIC, 0, 20)
        return call()

    replace_segment(service, 0, flip)
    service.objects.always("get", collect, segment_key(service, 2))
    with pytest.raises(StoreUnavailableError, match="log start moved"):
        page(service)


@pytest.mark.parametrize("values", ["a", "abcdef"])
def test_a_late_create_below_a_log_start_at_the_end_is_no_segment(service: Service, values: str) -> None:
    """All was trimmed and collected. A create that was still under way then lands, and has another length."""
    end = 2 * APPENDS
    service.log.partitions.trim(TOPIC, 0, end)
    for base in range(0, end, 2):
        service.objects.store.delete(segment_key(service, base))
    late = LogBuilder(topic_id=service.topic_id())
    late.state = late.state._replace(next_offset=end - 2)
    late.add(data(*values))
    late.store(service.objects.store)
    assert page(service) == page(service, end) == VerifiedSegments(end, 0, 0, [], has_more=False)
    with pytest.raises(OffsetOutOfRangeError):
        page(service, end + 1)
    append(service.another(), "c")
    assert page(service) == page(service, end) == VerifiedSegments(end + 1, 1, 1, [], has_more=False)


def test_a_listing_that_lacks_a_key_before_others_is_no_finding(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = segment_key(service, 10)
    list_all = service.objects.list

    def lacking(prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectSummary]:
        return [line for line in list_all(prefix, start_after, limit) if line.key != late]

    monkeypatch.setattr(service.objects, "list", lacking)
    assert page(service) == VerifiedSegments(10, 5, 10, [], has_more=True)


def test_a_page_ends_at_its_bytes_and_at_its_time(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(service.objects.store.get(segment_key(service, 0)).body)
    monkeypatch.setattr(limits, "VERIFY_RANGE_BYTES", 3 * size + size // 2)
    assert (page(service).segments, page(service).has_more) == (3, True)
    monkeypatch.setattr(limits, "VERIFY_RANGE_BYTES", 1)
    assert page(service).segments == 1
    monkeypatch.undo()
    monkeypatch.setattr(limits, "VERIFY_PAGE_MS", 0)
    monkeypatch.setattr(limits, "FETCH_SEGMENTS", 4)
    assert (page(service).segments, page(service).position, page(service).has_more) == (4, 8, True)
    assert walk(service, 100)[0] == APPENDS
