"""All scenarios, and all guards that their seeds show."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tests.simulation.access import scenario as access
from tests.simulation.groups import scenario as groups
from tests.simulation.harness.guards import Guard
from tests.simulation.harness.scenario import Scenario
from tests.simulation.log import combining
from tests.simulation.log import scenario as log
from tests.simulation.once import scenario as once
from tests.simulation.regions import scenario as regions
from tests.simulation.transactions import scenario as transactions

MODULES = (log, combining, access, transactions, once, regions, groups)
SCENARIOS: dict[str, Scenario[Any, Any]] = {module.SCENARIO.name: module.SCENARIO for module in MODULES}
GUARDS = (
    "log.test_guards",
    "log.test_combining_guards",
    "access.test_guards",
    "transactions.test_guards",
    "once.test_guards",
    "regions.test_guards",
    "groups.test_guards",
)


def all_guards() -> list[Guard]:
    """Return the guards of all scenarios, by scenario in the order of their declarations."""
    return [guard for name in GUARDS for guard in import_module(f"tests.simulation.{name}").GUARDS.all]
