"""One run of one seed of regions, and the plan by which it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.harness.scenario import Run, SkewedPlan
from tests.simulation.log.truth import Violation
from tests.simulation.regions.clients import Stage
from tests.simulation.regions.link import Links, Site
from tests.simulation.regions.truth import RegionsTruth

NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class RegionsPlan(SkewedPlan):
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    regions: tuple[str, ...] = NAMES
    acts: tuple[str, ...] = ()  # what the operator does
    late: bool = False  # the last region joins amid the traffic
    lost: float = 0  # the share of questions between regions that are lost
    slow_ms: float = 0
    stale: float = 0
    cuts: bool = False  # links are cut and come back
    skew_ms: float = 0
    last_in: str | None = None  # the region in which the last consumer reads to the end
    reads_amid: bool = False  # that consumer also reads to the end while processes still fail
    lost_region: str | None = None  # cut off for a while at the end, and suspended: others have its records
    apart: tuple[str, str] | None = None  # the first of these never reaches the second, which is suspended there
    writes_last: bool = False  # each region has one more record at the end

    @property
    def keeps_all(self) -> bool:
        """Return True if nothing was trimmed, deleted, given up or late: then every mark must reach the end."""
        return not self.late and not {"trim", "recreate", "skip"} & set(self.acts)


@dataclass(kw_only=True)
class RegionsRun(Run[RegionsPlan]):
    """One run of one seed."""

    sites: dict[str, Site]
    links: Links
    truth: RegionsTruth
    stage: Stage = field(init=False)

    gives_up = ()  # its clients pass over what they may be refused

    def do(self, *tasks: Callable[[], object]) -> None:
        super().do(*tasks)
        if self.links.problems:
            raise Violation(self.links.problems[0])
