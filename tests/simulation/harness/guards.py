"""Guards of the protocol. A seed fails when a guard is switched off, and passes with it.

Each guard names one seed, the shortest of the first few that find it. Because a change of the code may change what that
seed meets, other seeds are tried if it finds nothing, and a warning names the one to write down.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from fenceline.errors import CorruptLogError
from tests.simulation.harness.scenario import Failed, Plan, Scenario
from tests.simulation.log.truth import Violation

SEEDS_MAX = 300  # tried where the one that a guard names finds nothing

Patch = pytest.MonkeyPatch
SwitchOff = Callable[[Patch], None]
P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Guard:
    """One rule of the protocol, and the seed that finds its absence."""

    scenario: str
    switch_off: SwitchOff
    play: Callable[[int], object]  # a seed, by the plan that meets what the guard is for
    seed: int

    @property
    def name(self) -> str:
        return self.switch_off.__name__

    @property
    def description(self) -> str:
        return inspect.getdoc(self.switch_off) or ""

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Play the guard's seed without the guard, and then with it.

        Raises:
            AssertionError: No seed finds anything, or one finds something else than a broken promise.
            Failed: The seed fails with the guard, too.
        """
        seed = self.seed
        if not self._is_missed(seed):
            found = next((other for other in range(SEEDS_MAX) if self._is_missed(other)), None)
            assert found is not None, f"{self.scenario}: no seed below {SEEDS_MAX} misses the guard {self}"
            seed = found
            _warn(f"{self.scenario}: seed {self.seed} does not miss the guard {self} any longer: write down {seed}")
        self.play(seed)

    def _is_missed(self, seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            self.switch_off(patch)
            try:
                self.play(seed)
            except Failed as failure:
                found = failure.__cause__
            else:
                return False
        assert isinstance(found, Violation | CorruptLogError), f"{self}: seed {seed} found no broken promise: {found!r}"
        return True


def _warn(message: str) -> None:
    """Warn without a failure, though a warning is one elsewhere, because the guard was missed by another seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(message, stacklevel=3)


class Guards(Generic[P]):
    """The guards that one scenario's seeds show, as their functions declare them."""

    def __init__(self, scenario: Scenario[P, Any]) -> None:
        self._scenario = scenario
        self.all: list[Guard] = []

    def guard(self, plan: Callable[[int], P], seed: int) -> Callable[[SwitchOff], SwitchOff]:
        """Declare the function that switches a guard off; its docstring describes what is missing then."""

        def declared(switch_off: SwitchOff) -> SwitchOff:
            play = lambda seed: self._scenario.run_seed(seed, plan(seed))  # noqa: E731
            self.all.append(Guard(self._scenario.name, switch_off, play, seed))
            return switch_off

        return declared
