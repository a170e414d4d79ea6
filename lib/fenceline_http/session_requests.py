"""Requests about sessions and named producers.

Rule: members and their types are judged here. ``access.claims.request`` judges which of them go together, and their
bounds: it also serves callers without HTTP.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fenceline import limits
from fenceline.model.requests import ACCESS_MODES, ClaimRequest
from fenceline_http import request as http_request
from fenceline_http.fields import integer, refuse
from fenceline_http.strict_json import member

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to make."""

    lease_ms: int | None
    client_name: str | None


def new_session(event: http_request.Event) -> NewSession:
    fields = http_request.members(event, is_optional=True)
    wanted = NewSession(fields.integer("lease_ms"), fields.text("client_name"))
    fields.end()
    return wanted


def claim(event: http_request.Event) -> ClaimRequest:
    fields = http_request.members(event)
    access_mode = fields.require_text("access_mode")
    if access_mode not in ACCESS_MODES:
        refuse("access_mode", "one of " + ", ".join(ACCESS_MODES))
    request = ClaimRequest(
        access_mode=access_mode,
        partitions=_partitions(fields.take("partitions")),
        producer_name=fields.text("producer_name"),
        session_id=fields.text("session_id"),
        lease_ms=fields.integer("lease_ms"),
        client_name=fields.text("client_name"),
        topic_epochs=_topic_epochs(fields.take("topic_epochs")),
        wait_ms=fields.integer("wait_ms", high=limits.WAIT_MS_MAX) or 0,
    )
    fields.end()
    return request


def _partitions(tree: Any) -> list[int] | None:
    if tree is None:
        return None
    if type(tree) is not list:
        refuse("partitions", "a list")
    return [integer(one, f"partitions[{index}]") for index, one in enumerate(tree)]


def _topic_epochs(tree: Any) -> dict[int, int] | None:
    if tree is None:
        return None
    if type(tree) is not dict:
        refuse("topic_epochs", "an object of epochs by partition")
    for name in tree:
        if not _PARTITION.fullmatch(name):
            refuse(member("topic_epochs", name), "left out: the name is no partition")
    return {int(name): integer(epoch, member("topic_epochs", name), low=-1) for name, epoch in tree.items()}


@dataclass(frozen=True, slots=True)
class Poll:
    """Whose producer is asked for, if it is a poll, and how long that may wait."""

    session_id: str | None
    wait_ms: int


def poll(event: http_request.Event) -> Poll:
    asked = http_request.query(event)
    wanted = Poll(asked.text("session_id"), asked.integer("wait_ms", high=limits.WAIT_MS_MAX) or 0)
    asked.end()
    return wanted


def session_id(event: http_request.Event) -> str:
    asked = http_request.query(event)
    value = asked.text("session_id")
    asked.end()
    if value is None:
        refuse("session_id", "given")
    return value
