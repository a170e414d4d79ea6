"""Recorded runs of the real code against the models: each line has a way, or the code is not the model's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from models.traces import Recording, explain
from tests.models.recorders import RECORDERS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("checker")]

# Fixed seeds of at most 40 lines or so, each with something in it: a lost race, a late create, an unknown outcome.
EXPLAINED = {
    "Append": (22, 60, 119, 135),
    "Access": (20, 36, 42, 44),
    "Combining": (7, 39, 43, 58),
    "Transaction": (13, 30, 58, 65),
}
# A run of code without a guard: the guard, the seed, and the kind of the line that has no way in the model.
REFUSED = {
    "Append": ("look after create", 22, "acknowledged"),
    "Access": ("fences before the answer", 42, "severed"),
    "Combining": ("leave only what was read", 1, "round"),
    "Transaction": ("a higher epoch refuses, lapsed or not", 13, "batch"),
}
# A kind of line without which what follows has no way.
NEEDED = {
    "Append": "created",
    "Access": "wrote",
    "Combining": "put",
    "Transaction": "wrote",
}


def recorded(model: str, seed: int, without: str = "") -> Recording:
    recording: Recording = RECORDERS[model].record(seed, without)
    return recording


@pytest.mark.parametrize(
    ("model", "seed"),
    [
        # By day two of each model; `make simulate` records more.
        pytest.param(model, seed, marks=[pytest.mark.prove] if at > 1 else [])
        for model, seeds in EXPLAINED.items()
        for at, seed in enumerate(seeds)
    ],
)
def test_a_run_of_the_code_is_a_behaviour_of_the_model(model: str, seed: int) -> None:
    verdict = explain(recorded(model, seed))
    assert verdict.is_explained, str(verdict)
    assert len(verdict.recording.events) >= 10


@pytest.mark.parametrize("model", RECORDERS)
def test_a_run_of_code_without_a_guard_is_refused(model: str) -> None:
    guard, seed, kind = REFUSED[model]
    verdict = explain(recorded(model, seed, guard))
    assert not verdict.is_explained
    assert verdict.recording.events[verdict.followed]["event"] == kind, str(verdict)


@pytest.mark.parametrize("model", RECORDERS)
def test_a_run_whose_first_effect_is_left_out_is_refused(model: str) -> None:
    """A model that any lines would fit proves nothing."""
    recording = recorded(model, EXPLAINED[model][0])
    first = next(at for at, event in enumerate(recording.events) if event["event"] == NEEDED[model])
    events = [*recording.events[:first], *recording.events[first + 1 :]]
    assert not explain(replace(recording, events=events)).is_explained
