"""Requests about ownership: what to own, what to release, whose owner to show.

Rule: members and their types are judged here. ``access.resources`` judges names, bounds and repetitions: it also serves
callers without HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.model.requests import OwnTarget
from fenceline_http import request as http_request
from fenceline_http.fields import Fields, refuse


@dataclass(frozen=True, slots=True)
class Own:
    """Resources to own, all of them or none."""

    session_id: str
    group: str | None
    resources: Sequence[OwnTarget]


@dataclass(frozen=True, slots=True)
class Release:
    """Resources to give up."""

    session_id: str
    group: str | None
    resources: Sequence[str]


@dataclass(frozen=True, slots=True)
class Look:
    """A resource whose owner is asked for."""

    group: str | None
    resource: str


def own(event: http_request.Event) -> Own:
    fields = http_request.members(event)
    session_id, group = fields.require_text("session_id"), fields.text("group")
    resources = []
    for index, tree in enumerate(_list(fields)):
        one = Fields(tree, f"resources[{index}]")
        resources.append(OwnTarget(one.require_text("resource"), one.integer("generation")))
        one.end()
    fields.end()
    return Own(session_id, group, resources)


def release(event: http_request.Event) -> Release:
    fields = http_request.members(event)
    session_id, group = fields.require_text("session_id"), fields.text("group")
    resources = _list(fields)
    for index, resource in enumerate(resources):
        if type(resource) is not str:
            refuse(f"resources[{index}]", "a string")
    fields.end()
    return Release(session_id, group, resources)


def look(event: http_request.Event) -> Look:
    asked = http_request.query(event)
    group, resource = asked.text("group"), asked.text("resource")
    asked.end()
    if resource is None:
        refuse("resource", "given")
    return Look(group, resource)


def _list(fields: Fields) -> list[Any]:
    trees = fields.require("resources")
    if type(trees) is not list:
        refuse("resources", "a list")
    return trees
