"""Segments that a test damages in the store, behind the log's back."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.format import keys
from tests.support.service import Service


def segment_key(service: Service, base: int) -> str:
    return keys.segment_key(service.topic_id(), 0, base)


def replace_segment(service: Service, base: int, change: Callable[[bytes, dict[str, str]], bytes]) -> None:
    key = segment_key(service, base)
    stored = service.objects.store.get(key)
    metadata = dict(stored.metadata)
    body = change(stored.body, metadata)
    service.objects.store.delete(key)
    service.objects.store.create(key, body, metadata)
