"""Log groups, all kept for the time that the deployment sets, and deleted with their stack."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.context import Deployment

_RETENTION: Mapping[int, logs.RetentionDays] = {
    1: logs.RetentionDays.ONE_DAY,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    90: logs.RetentionDays.THREE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    731: logs.RetentionDays.TWO_YEARS,
}


def log_group(scope: Construct, id: str, deployment: Deployment) -> logs.LogGroup:
    """Return a new log group."""
    retention = _RETENTION[deployment.log_days]
    return logs.LogGroup(scope, id, retention=retention, removal_policy=cdk.RemovalPolicy.DESTROY)
