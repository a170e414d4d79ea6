"""Stacks, each set-up of them made once; where Node is missing, the tests of stacks are reported in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.servers.install import CannotInstall, need_node
from tests.servers.once import keep_one


# Before xdist reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of stacks in one worker, because the toolkit's start takes seconds."""
    keep_one(config, items, lambda item: item.path.name.startswith("test_stack"), need_node)
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name.startswith("test_stack"):
            item.add_marker(pytest.mark.xdist_group("stacks"))


@pytest.fixture(scope="session")
def stacks() -> ModuleType:
    """Import what makes stacks; skip the test where Node can't be had."""
    try:
        need_node()
    except CannotInstall as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(f"the stacks were not made: {error}")
    return import_module("tests.infra.stacks")


@pytest.fixture(scope="session")
def make(stacks: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Make a stack; a file takes the place of the bundle, since nothing that a stack says depends on the bundle."""
    code = tmp_path_factory.mktemp("code")
    (code / "code.py").write_text("")
    return partial(stacks.make, code)


@pytest.fixture(scope="session")
def plain(stacks: ModuleType, make: Callable[..., Any]) -> Mapping[str, Any]:
    """The template of a deployment without any option."""
    template: Mapping[str, Any] = stacks.template_of(make())
    return template


@pytest.fixture(scope="session")
def lint(
    stacks: ModuleType, make: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Iterable[Mapping[str, Any]]], None]:
    """Refuse stacks in which AwsSolutions or cfn-lint finds something; one run of cfn-lint reads all of them."""

    def judge(deployments: Iterable[Mapping[str, Any]]) -> None:
        directory = tmp_path_factory.mktemp("templates")
        for number, options in enumerate(deployments):
            stack = make(**options)
            stacks.synth(stack)  # raises what AwsSolutions finds
            (directory / f"{number}.json").write_text(json.dumps(stacks.template_of(stack)))
        # W3005 is a DependsOn that is implied, too; CDK writes it.
        command = [str(Path(sys.executable).with_name("cfn-lint")), "-i", "W3005", "-r", stacks.REGION, "-t"]
        command += sorted(map(str, directory.iterdir()))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")

    return judge
