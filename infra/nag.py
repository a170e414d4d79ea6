"""Findings of cdk-nag that are accepted, each with the reason.

Rule: a finding is either mended, or accepted where it arises, by a reason that is true.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import IConstruct


def accept(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept one of AwsSolutions' findings (``S1``, ``IAM5[Resource::*]``) on a construct and what is below it."""
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=f"AwsSolutions-{finding}", reason=reason))
