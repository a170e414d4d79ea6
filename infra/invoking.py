"""Statements of IAM that allow or refuse requests to the API.

Rule: a star of IAM matches slashes, too, so that a pattern may match more routes than the one that it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_iam as iam

from infra.nag import accept


def pattern(path: str) -> str:
    """Return a route's path with a star for each parameter."""
    return "/".join("*" if part.startswith("{") else part for part in path.split("/"))


def grant(
    role: iam.Role,
    api: apigateway.HttpApi,
    requests: Sequence[tuple[str, str]],
    *,
    because: str,
    effect: iam.Effect = iam.Effect.ALLOW,
) -> None:
    """Let a role make these requests, or refuse them to it.

    Args:
        requests: Methods and paths, as the routes write them.
        because: Why paths with stars are accepted, for cdk-nag.
    """
    asked = [(method, pattern(path)) for method, path in requests]
    resources = [_arn(cdk.Stack.of(role), api, method, path) for method, path in asked]
    role.add_to_policy(iam.PolicyStatement(effect=effect, actions=["execute-api:Invoke"], resources=resources))
    for method, path in asked:
        accept(role, _finding(role, api, method, path), because)


def _arn(stack: cdk.Stack, api: apigateway.HttpApi, method: str, path: str) -> str:
    prefix = f"arn:{stack.partition}:execute-api:{stack.region}:{stack.account}"
    return f"{prefix}:{api.api_id}/$default/{method}{path}"


def _finding(role: iam.Role, api: apigateway.HttpApi, method: str, path: str) -> str:
    """Return the name that cdk-nag gives to the star in a request's ARN."""
    stack = cdk.Stack.of(role)
    made = stack.get_logical_id(cast(cdk.CfnElement, api.node.default_child))
    account = "<AWS::AccountId>" if cdk.Token.is_unresolved(stack.account) else stack.account
    prefix = f"arn:<AWS::Partition>:execute-api:{stack.region}:{account}"
    return f"IAM5[Resource::{prefix}:<{made}>/$default/{method}{path}]"
