"""What an error says of itself."""

from __future__ import annotations

import pytest

from fenceline import errors
from fenceline.model.record import Record
from fenceline_testing.service import in_memory


@pytest.mark.parametrize(
    ("detail", "named"),
    [
        ("end it first", "end it first: topic=t partition=3"),
        ("send again: next=7", "send again: topic=t partition=3 next=7"),
        ("claim again: topic=t", "claim again: topic=t partition=3"),
        ("claim again: epoch=1 topic=t next=7", "claim again: epoch=1 topic=t partition=3 next=7"),
        ("in the way: id=a client_name=x: y=z", "in the way: topic=t partition=3 id=a client_name=x: y=z"),
        ("late: other_topic=t topic=tt topic=t", "late: other_topic=t topic=tt topic=t partition=3"),
        ("look: topic=t partition=3", "look: topic=t partition=3"),
    ],
)
def test_an_error_of_one_partition_names_it_once(detail: str, named: str) -> None:
    with pytest.raises(errors.ThrottledError) as caught, errors.naming("t", 3), errors.naming("t", 3):
        raise errors.ThrottledError(detail)
    error = caught.value
    assert (str(error), error.detail, error.topic, error.partition) == (named, named, "t", 3)
    assert error.problem().items() >= {"detail": named, "topic": "t", "partition": 3}.items()


def test_an_error_keeps_the_place_that_it_names() -> None:
    with pytest.raises(errors.UnstableOffsetCommitError) as caught, errors.naming("t", 3):
        raise errors.UnstableOffsetCommitError("wait: topic=u partition=4", topic="u", partition=4)
    assert (str(caught.value), caught.value.topic) == ("wait: topic=u partition=4", "u")


def test_a_clients_error_has_the_place_as_attributes() -> None:
    """A producer of several partitions says by them which one was refused."""
    with in_memory() as lent:
        lent.client.create_topic("t", partitions=2)
        with pytest.raises(errors.OffsetMismatchError) as lost:
            lent.client.produce("t", 1, [Record(b"v")], expected_offset=7)
        delivery = lent.client.producer("t", expected_offsets={0: 0, 1: 7})
        sent = [delivery.send(value=b"v", partition=number) for number in (0, 1)]
        with pytest.raises(errors.OffsetMismatchError) as late:
            delivery.close()
        assert sent[0].result().offset == 0
    for error in (lost.value, late.value):
        assert (error.topic, error.partition, error.next_offset) == ("t", 1, 0)
        assert ": topic=t partition=1 expected=7 next=0" in str(error)


@pytest.mark.parametrize("error", [errors.UnknownSessionError("no such session"), errors.NotAuthorizedError("no")])
def test_an_error_that_is_about_no_partition_names_none(error: errors.FencelineError) -> None:
    with pytest.raises(type(error)) as caught, errors.naming("t", 3):
        raise error
    assert (str(caught.value), caught.value.extra) == (error.detail, {})
