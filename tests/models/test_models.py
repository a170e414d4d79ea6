"""Each model in the checker: its invariants hold, and without any of its guards the one falls that bounds.py names."""

from __future__ import annotations

import pytest

from models.bounds import MODELS, Bounds, Fault
from models.runner import Found, check

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checker")]

# By day the bounds of each model's `.cfg`, and one guard of each, since each takes seconds of Java. Only a change of a
# model changes any of it. All of it is checked at night, and by `make models`.
RUNS = [
    pytest.param(name, label, bounds, marks=[pytest.mark.prove] if label else [])
    for name, model in MODELS.items()
    for label, bounds in {"": {}, **model.runs}.items()
]
GUARDS = [
    pytest.param(name, guard, marks=[pytest.mark.prove] if at else [])
    for name, model in MODELS.items()
    for at, guard in enumerate(model.guards)
]
FAULTS = [(name, fault) for name, model in MODELS.items() for fault in model.faults]


def history_of(found: Found) -> str:
    """Return the history that was found, for a test that fails."""
    return "\n".join([f"{found.violated} {found.wrong}", *found.story()])


@pytest.mark.parametrize(("model", "label", "bounds"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_no_order_of_steps_breaks_an_invariant(model: str, label: str, bounds: Bounds) -> None:
    found = check(model, bounds=bounds)
    assert not found.violated, history_of(found)
    assert found.states > 1_000


@pytest.mark.parametrize(("model", "guard"), GUARDS)
def test_without_a_guard_the_invariant_that_it_keeps_falls(model: str, guard: str) -> None:
    expected = MODELS[model].guards[guard]
    found = check(model, off=guard, bounds=expected.bounds)
    assert found.falls == expected.falls, history_of(found)
    assert bool(found.violated) != bool(expected.why)


@pytest.mark.prove
@pytest.mark.parametrize(("model", "fault"), FAULTS, ids=lambda value: getattr(value, "name", value))
def test_a_rule_that_is_changed_in_a_copy_is_found(model: str, fault: Fault) -> None:
    found = check(model, fault=fault, bounds=fault.bounds)
    assert found.falls == fault.falls, history_of(found)
