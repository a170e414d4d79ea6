"""A scenario: what its seeds draw, how they are played, and what must hold then."""

from __future__ import annotations

from typing import Any


class Failed(AssertionError):
    """A seed that found something; it carries the run."""

    def __init__(self, scenario: str, run: Any) -> None:
        super().__init__(scenario, run.seed)
        self.scenario = scenario
        self.run = run

    def __str__(self) -> str:
        cause = f"{type(self.__cause__).__name__}: {self.__cause__}"
        replay = f"python -m tests.simulation --scenario {self.scenario} --seed {self.run.seed} --print"
        return f"seed {self.run.seed}: {cause}\nreplay: {replay}"
