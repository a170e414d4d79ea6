"""The CDK app: one stack per region, by ``cdk deploy --all -c regions=us-east-1,eu-west-1``.

docs/operate/index.md is the first page for operators.
"""

from __future__ import annotations

import os
import sys

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from infra import bundling
from infra.context import BadContext, parse
from infra.peers import stack_name
from infra.regional_stack import RegionalStack


def main() -> int:
    app = cdk.App()
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        deployment = parse(
            app.node.get_all_context(),
            default_region=os.environ.get("CDK_DEFAULT_REGION") or os.environ.get("AWS_REGION") or "",
        )
        code = bundling.bundled(deployment.target)
        asking = bundling.bundled(deployment.target, for_peers=True) if deployment.has_peers else None
    except (BadContext, bundling.CannotBundle) as error:
        print(f"fenceline: {error}", file=sys.stderr)
        return 1
    if not bundling.is_compiled(deployment.target):
        print(f"fenceline: {bundling.NOT_COMPILED}", file=sys.stderr)
    for region in deployment.regions:
        environment = cdk.Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=region)
        name = stack_name(deployment.name, region)
        RegionalStack(app, name, deployment=deployment, code=code, asking=asking, env=environment)
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
