"""The history of access: ACCESS markers, each of which says where the one before it is (protocol, "Markers")."""

from __future__ import annotations

from fenceline import limits
from fenceline.model.requests import OwnTarget
from tests.support.claiming import FENCING, LAPSE_MS, claim, send, stored_access
from tests.support.service import TOPIC, Service, append


def test_each_access_marker_says_where_the_one_before_it_is(service: Service) -> None:
    """Claims, the end that rides with an append, an owner and the fence of a severed session make one chain."""
    a = claim(service.log, producer_name="a", client_name="web-1:1")
    send(service.log, a, "1")
    claim(service.another(), FENCING, producer_name="b")  # no client name
    service.runtime.advance(LAPSE_MS)
    append(service.another(), "2")  # goes back to shared
    owner, rival = (service.log.access.create_session(client_name=name).session_id for name in ("own:1", "own:2"))
    service.log.access.own(owner, [OwnTarget(f"{TOPIC}/0")])
    service.another().access.own(rival, [OwnTarget(f"{TOPIC}/0", limits.GENERATION_MAX)])  # severs, and claims
    service.log.access.own(rival, [OwnTarget("lock")])
    service.another().access.own(service.log.access.create_session().session_id, [OwnTarget("lock", 7)])  # severs

    found = stored_access(service)
    named = [(value["mode"], value.get("producer_name"), value.get("client_name")) for _, value in found]
    assert named == [
        ("Exclusive", "a", "web-1:1"),
        ("Exclusive", "b", None),
        ("Shared", None, None),
        ("Exclusive", None, "own:1"),
        ("Exclusive", None, "own:2"),
        ("Shared", None, None),
    ]
    offsets = [header.base_offset for header, _ in found]
    assert [value["previous"] for _, value in found] == [-1, *offsets[:-1]]


def test_a_process_that_begins_at_a_checkpoint_knows_the_marker_before(service: Service) -> None:
    claim(service.log, FENCING)
    append_at = claim(service.log, FENCING).next_offsets[0] - 1
    service.another().partitions.checkpoint(TOPIC, 0)
    claim(service.another(), FENCING)
    assert stored_access(service)[-1][1]["previous"] == append_at
