from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import errors
from fenceline.format import keys
from fenceline.limits import PRODUCER_IDS_PER_BLOCK
from tests.support.service import Service, is_unavailable, loses_answer, moves, never_arrives


def ids(log: Any, count: int) -> list[int]:
    return [log.producing.new_producer_id()[0] for _ in range(count)]


def test_an_id_begins_with_epoch_0(service: Service) -> None:
    producer_id, epoch = service.log.producing.new_producer_id()
    assert producer_id >= 0
    assert epoch == 0


def test_no_two_processes_get_the_same_id(service: Service) -> None:
    logs = [service.log, service.another(), service.another()]
    given = [one for _ in range(3) for log in logs for one in ids(log, PRODUCER_IDS_PER_BLOCK // 2)]
    assert len(set(given)) == len(given)


def test_no_two_threads_get_the_same_id(live_service: Service) -> None:
    logs = [live_service.log, live_service.another()] * 4
    with ThreadPoolExecutor(8) as pool:
        given = [one for some in pool.map(lambda log: ids(log, 400), logs) for one in some]
    assert len(set(given)) == len(given) == 3_200


def test_a_process_that_starts_again_takes_none_of_its_earlier_life(service: Service) -> None:
    before = ids(service.another(), 3)
    assert not set(before) & set(ids(service.another(), 2 * PRODUCER_IDS_PER_BLOCK))


def test_a_block_costs_one_item_write(service: Service) -> None:
    service.items.calls.clear()
    ids(service.log, 2 * PRODUCER_IDS_PER_BLOCK)
    assert service.items.calls["write"] == 2


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_one_fault_of_the_item_store_costs_at_most_a_block(service: Service, fault: Any) -> None:
    """An allocation without an answer may have been made; no process makes it again, so its block is lost."""
    first = ids(service.log, 1)
    service.items.plan("write", fault)
    other = ids(service.another(), PRODUCER_IDS_PER_BLOCK)
    third = ids(service.another(), PRODUCER_IDS_PER_BLOCK)
    given = [*first, *other, *third]
    assert len(set(given)) == len(given)
    assert max(given) < 5 * PRODUCER_IDS_PER_BLOCK


def test_an_unavailable_counter_is_an_error(service: Service) -> None:
    service.items.always("write", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        service.log.producing.new_producer_id()
    service.items.always("write", never_arrives)
    with pytest.raises(errors.ContendedError):
        service.log.producing.new_producer_id()
    service.items.always("write", None)
    assert keys.PRODUCER_ID_BLOCK not in service.items.store.get([keys.PRODUCER_ID_BLOCK])
    assert service.log.producing.new_producer_id()[1] == 0
