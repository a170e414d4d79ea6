"""The pages for operators against the deployment: each alarm, setting and metric that there is has its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import TABLE
from functions.telemetry import metric_names
from infra.context import _FURTHER, Deployment
from infra.runbooks import RUNBOOKS, runbook_of
from tests.docs.blocks import ROOT, blocks_of
from tests.infra.conftest import make, stacks
from tests.servers.install import AWS_CDK
from tools.docs import cli

__all__ = ["make", "stacks"]

DOCS = ROOT / "docs"
PAGES = sorted(page for page in (DOCS / "operate/runbooks").glob("*.md") if page.name != "index.md")
HEADINGS = ["You see", "It means", "Look", "Do", "Afterwards"]
SETTINGS = (DOCS / "operate/settings.md").read_text()
METRICS = (DOCS / "reference/metrics.md").read_text()
LIMITS = (DOCS / "reference/limits.md").read_text()
INNER_LIMITS = (DOCS / "reference/inner-limits.md").read_text()
OWN = METRICS.partition("## fenceline's own")[2].partition("\n## ")[0]
OUR_METRICS = sorted(
    value
    for name, value in vars(metric_names).items()
    if name.isupper() and isinstance(value, str) and name not in ("NAMESPACE", "SERVICE", "CODE")
)


BOUNDS = {name: value for name, value in vars(limits).items() if name.isupper() and name != "MIB"}
UNITS = {"bytes": 1, "KiB": 1024, "MiB": 1024**2, "ms": 1, "s": 1_000, "minute": 60_000, "minutes": 60_000}
UNITS |= {"h": 3_600_000, "days": 86_400_000, "characters": 1}


def has(text: str, alarm: str) -> bool:
    """Return True if a text names an alarm, by itself or with those of all functions."""
    of_any = f"*{'Errors' if alarm.endswith('Errors') else 'Throttles'}"
    return f"`{alarm}`" in text or f"`{of_any}`" in text


@pytest.mark.slow
@pytest.mark.xdist_group("stacks")
def test_each_alarm_leads_to_its_runbook_and_is_in_each_table(
    stacks: ModuleType,
    make: Callable[..., Any],
) -> None:
    """One test, because it makes a stack: a region with peers, which has all alarms that there are."""
    template = stacks.template_of(make(regions=("eu-west-1", "us-east-1")))
    alarms = {
        re.sub(r"^Observability|[0-9A-F]{8}$", "", name): one["Properties"]
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::CloudWatch::Alarm"
    }
    assert len(alarms) > 30
    assert {name for name in RUNBOOKS if not name.startswith("*")} <= set(alarms)
    for alarm, made in alarms.items():
        address = runbook_of(alarm)
        assert made["AlarmDescription"].endswith(f" See {address} in the documentation."), alarm
        assert f"`{alarm}`" in (DOCS / f"{address}.md").read_text(), alarm
        assert f"`{made['MetricName']}`" in METRICS, alarm
        for page in ("operate/monitor.md", "operate/runbooks/index.md", "reference/metrics.md"):
            assert has((DOCS / page).read_text(), alarm), (page, alarm)


@pytest.mark.parametrize("metric", OUR_METRICS)
def test_each_metric_has_its_row(metric: str) -> None:
    [row] = re.findall(rf"^\| `{metric}` \|(.*)\|$", OWN, re.MULTILINE)
    unit, _, functions, _ = (cell.strip() for cell in row.split("|"))
    assert unit == ("milliseconds" if metric.endswith("Ms") else "count")
    assert functions == "each function" or re.fullmatch(r"`(produce|sweeper|replicator|notifier)`", functions)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_runbook_has_the_five_parts(page: Any) -> None:
    without_code = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^## (.*)$", without_code, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_runbook_is_found_from_the_first_page(page: Any) -> None:
    assert f"]({page.name})" in (page.parent / "index.md").read_text()


@pytest.mark.parametrize("setting", sorted({field.name for field in fields(Deployment)} | _FURTHER))
def test_each_setting_of_a_deployment_has_its_part(setting: str) -> None:
    assert re.search(rf"^### .*-c {setting}\b", SETTINGS, re.MULTILINE)


def test_what_the_page_on_aws_types_is_there() -> None:
    """By night it is typed (``tests/e2e/test_page.py``)."""
    blocks = blocks_of((DOCS / "learn/on-aws.md").read_text())
    typed = "\n".join(block.body.replace("\\\n", " ") for block in blocks if block.runs and block.language == "sh")
    settings = re.findall(r" -c (\w+)=", typed)
    assert settings
    assert set(settings) <= {field.name for field in fields(Deployment)} | _FURTHER
    assert set(re.findall(r"aws-cdk@([\d.]+)", typed)) == {AWS_CDK}
    assert unknown_in(typed) == []
    assert unknown_in("fenceline topic erase orders\nfenceline consume orders --formats key-value") == [
        "topic erase",
        "consume --formats",
    ]


def unknown_in(typed: str) -> list[str]:
    """Return the commands, and the options of commands, that lines of a shell type and that are not there."""
    known = {command.words: command for command in cli.commands()}
    unknown = []
    for line in re.findall(r"(?<![-\w./])fenceline ([^|\n#>;&]*)", typed):
        words = line.split()
        found = next((words[:count] for count in (3, 2, 1) if tuple(words[:count]) in known), [])
        command = known.get(tuple(found))
        if command is None or command.commands:
            unknown.append(" ".join(words[:2]))
            continue
        options = {name for option in command.options for name in [*option.opts, *option.secondary_opts]}
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        unknown += [f"{' '.join(found)} {name}" for name in sorted(given - options)]
    return unknown


def number_in(cell: str) -> int | float:
    """Return the number with which a bound begins, with its unit counted."""
    if power := re.match(r"2([⁰¹²³⁴⁵⁶⁷⁸⁹]+)−1", cell):
        exponent = int(power[1].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")))
        return (1 << exponent) - 1
    found = re.search(r"([\d.,]*\d) ?([A-Za-z]+)?", cell)
    assert found is not None, cell
    return float(found[1].replace(",", "")) * UNITS.get(found[2], 1)


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_each_bound_of_the_system_has_its_row(name: str) -> None:
    found = re.findall(rf"^\|[^|]*\| ([^|]*) \|[^|]*\| `{name}` \|$", LIMITS, re.MULTILINE)
    found += re.findall(rf"^\| `{name}` \| ([^|]*) \|", INNER_LIMITS, re.MULTILINE)
    [bound] = found
    assert number_in(bound.replace("6 MB (", "")) == BOUNDS[name], bound


def test_the_pages_of_limits_name_no_other_bound() -> None:
    named = re.findall(r"`([A-Z0-9_]+)` \|$", LIMITS, re.MULTILINE) + re.findall(
        r"^\| `(\w+)`", INNER_LIMITS, re.MULTILINE
    )
    assert sorted(named) == sorted(BOUNDS)


def test_each_error_on_the_page_of_limits_is_one_that_there_is() -> None:
    cells = [row.split("|")[3] for row in LIMITS.splitlines() if row.startswith("| ")]
    codes = {code for cell in cells for code in re.findall(r"`([A-Z_]+)`", cell)}
    assert codes <= set(TABLE)
    assert len(codes) > 5
