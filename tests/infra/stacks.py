"""Stacks as the tests make them.

Rule: importing this module starts Node, which takes seconds. So only a test that makes a stack imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import assertions
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks

from infra.context import Deployment
from infra.functions import SIZES
from infra.regional_stack import COLLECTORS, RegionalStack

__all__ = ["COLLECTORS", "REGION", "SIZES", "add_open_bucket", "make", "synth", "template_of", "warnings_of"]

REGION = "eu-west-1"


def make(code: Path, *, region: str = REGION, account: str | None = None, **options: Any) -> RegionalStack:
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    environment = cdk.Environment(region=region, account=account)
    return RegionalStack(app, "Fenceline", deployment=Deployment(**options), code=code, env=environment)


def template_of(stack: RegionalStack) -> Mapping[str, Any]:
    return assertions.Template.from_stack(stack).to_json()


def warnings_of(stack: RegionalStack) -> list[str]:
    """Return what the toolkit prints as a warning when the stack is made."""
    found = assertions.Annotations.from_stack(stack).find_warning("*", assertions.Match.any_value())
    return [str(one.entry.data) for one in found]


def synth(stack: RegionalStack) -> None:
    """Make the whole assembly, as the toolkit would.

    Raises:
        RuntimeError: AwsSolutions found something.
    """
    app = cdk.App.of(stack)
    assert isinstance(app, cdk.App)
    app.synth()


def add_open_bucket(stack: RegionalStack) -> None:
    s3.Bucket(stack, "Open")
