"""Finds a way through a model that explains each line of a recorded run, or says which line has none.

A run is recorded in a simulation (`tests/models/recorders`). `<Model>Trace.tla` says what each kind of line is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.runner import HERE, ModelError, run

Value = str | int | bool | frozenset[str] | tuple[object, ...] | Mapping[str, int]
Event = Mapping[str, Value]
_FOLLOWED = re.compile(r'<<"followed", (\d+)>>')


@dataclass(frozen=True)
class Recording:
    """The steps of a run that a model knows, in the order in which they were done."""

    model: str
    events: Sequence[Event]  # each has a member "event": its kind
    definitions: Mapping[str, Value] = field(default_factory=dict)  # constants of the trace, which its .cfg names


@dataclass(frozen=True)
class Verdict:
    """The verdict whether a recording is a behaviour of its model."""

    recording: Recording
    followed: int  # how many of the first lines have a way through the model
    states: int
    seconds: float

    @property
    def is_explained(self) -> bool:
        return self.followed == len(self.recording.events)

    def __str__(self) -> str:
        lines = len(self.recording.events)
        took = f"{self.states:,} states, {self.seconds:.1f} s"
        if self.is_explained:
            return f"{self.recording.model} explains all {lines} lines: {took}"
        refused = in_tla(self.recording.events[self.followed])
        return (
            f"{self.recording.model} has no way on after line {self.followed} of {lines}: {took}. The next: {refused}"
        )


def explain(recording: Recording) -> Verdict:
    """Look for a way through the model.

    Raises:
        ModelError: There is no Java or no checker; or the way to the last line breaks an invariant of the model.
    """
    model, module = recording.model, f"{recording.model}Trace"
    files = {name: (HERE / name).read_text() for name in (f"{model}.tla", f"{module}.tla", f"{module}.cfg")}
    found = run(module, {**files, "TraceData.tla": data(recording)}, translate=model)
    if found.violated not in ("", "Unfinished"):
        raise ModelError(f"a recorded run breaks {found.violated} {found.wrong}; model={model}")
    followed = [int(line) for line in _FOLLOWED.findall(found.output)]
    # The state behind the last line is beyond the constraint's last report where nothing else was tried.
    far = len(recording.events) if found.violated else followed[-1]
    return Verdict(recording, far, found.states, found.seconds)


def data(recording: Recording) -> str:
    """Return the module that the trace's side of the model reads."""
    defined = "".join(f"{name} == {in_tla(value)}\n" for name, value in recording.definitions.items())
    events = ",\n  ".join(in_tla(event) for event in recording.events)
    return f"---- MODULE TraceData ----\nEXTENDS Integers\n{defined}Trace == <<\n  {events} >>\n====\n"


def in_tla(value: object) -> str:
    """Return a value as TLA+ writes it: a mapping is a record, and a sequence is a tuple."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case Mapping():
            return "[" + ", ".join(f"{name} |-> {in_tla(member)}" for name, member in value.items()) + "]"
        case frozenset() | set():
            return "{" + ", ".join(sorted(in_tla(member) for member in value)) + "}"
        case list() | tuple():
            return "<< " + ", ".join(in_tla(member) for member in value) + " >>"
        case _:
            raise TypeError(f"TLA+ has no such value: {value!r}")
