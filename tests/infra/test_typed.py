"""The CDK's modules that the stacks use, as the type checker's settings list them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_type_checker_reads_each_module_of_the_cdk_that_is_used() -> None:
    """Prove that no module is missing from the list: all of a missing one would be Any."""
    sources = [path.read_text() for folder in ("infra", "tests/infra") for path in (ROOT / folder).glob("*.py")]
    imports = [found for source in sources for found in re.findall(r"^from aws_cdk import (.+)$", source, re.MULTILINE)]
    used = {name for found in imports for name in re.findall(r"assertions|aws_\w+", found)}
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (read,) = [one["module"] for one in overrides if one.get("follow_imports") == "normal"]
    assert read == ["aws_cdk", *sorted(f"aws_cdk.{name}" for name in used)]
