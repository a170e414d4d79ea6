"""The HTTP API: every route of the contract's table, each to the function that serves it.

Rule: each route is listed in ``fenceline_http.routes`` alone. A request without a route goes to admin, which answers in
the documented form. No unsigned request gets through, unless two settings ask for that.

Not here: what a request means (``fenceline_http``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fenceline_http import routes
from infra.context import Deployment
from infra.logs import log_group
from infra.nag import accept

# Which request, its outcome and its caller. There is no path, because topics may be named for customers, and no
# query, because it may name sessions.
_ACCESS_LOG = {
    "request_id": "$context.requestId",
    "time": "$context.requestTimeEpoch",
    "route": "$context.routeKey",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "latency_ms": "$context.responseLatency",
    "integration_latency_ms": "$context.integrationLatency",
    "integration_error": "$context.integrationErrorMessage",
    "authorizer_error": "$context.authorizer.error",
    "caller": "$context.identity.userArn",
}


class Api(Construct):
    """A region's endpoint.

    Args:
        functions: By their names in the routes.
    """

    def __init__(
        self, scope: Construct, id: str, *, deployment: Deployment, functions: Mapping[str, lambda_.IFunction]
    ) -> None:
        super().__init__(scope, id)
        authorizer = authorizers.HttpIamAuthorizer() if deployment.auth == "iam" else None
        targets = {
            name: integrations.HttpLambdaIntegration(
                f"{name}-integration",
                function,
                payload_format_version=apigateway.PayloadFormatVersion.VERSION_2_0,
                scope_permission_to_route=False,  # one permission for all routes, because a policy can't hold forty
            )
            for name, function in functions.items()
        }
        self.api = apigateway.HttpApi(
            self,
            "Http",
            description="fenceline: GET /docs shows the contract",
            create_default_stage=False,
            default_authorizer=authorizer,
            default_integration=targets["admin"],
            cors_preflight=_cors(deployment),
        )
        for route in routes.ROUTES:
            self.api.add_routes(
                path=route.path,
                methods=[apigateway.HttpMethod[method] for method in route.methods],
                integration=targets[route.function],
            )
        if deployment.cors_origins:
            self._let_browsers_ask(targets["admin"])
        self.stage = self._stage(deployment)
        if deployment.auth == "none":
            accept(self.api, "APIG4", "asked for by -c auth=none -c unauthenticated=true")

    @property
    def url(self) -> str:
        return self.api.api_endpoint

    def _stage(self, deployment: Deployment) -> apigateway.HttpStage:
        log = log_group(self, "AccessLog", deployment)
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=deployment.throttle_rate, burst_limit=deployment.throttle_burst
            ),
        )
        settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=log.log_group_arn, format=json.dumps(_ACCESS_LOG)
        )
        cast(apigateway.CfnStage, stage.node.default_child).access_log_settings = settings
        return stage

    def _let_browsers_ask(self, target: apigateway.HttpRouteIntegration) -> None:
        """Let a browser's preflight, which is never signed, reach the gateway's CORS answer and not `$default`."""
        [route] = self.api.add_routes(
            path="/{proxy+}",
            methods=[apigateway.HttpMethod.OPTIONS],
            integration=target,
            authorizer=apigateway.HttpNoneAuthorizer(),
        )
        accept(route, "APIG4", "a browser asks before it signs; the gateway answers with the origins that may call")


def _cors(deployment: Deployment) -> apigateway.CorsPreflightOptions | None:
    if not deployment.cors_origins:
        return None
    return apigateway.CorsPreflightOptions(
        allow_origins=list(deployment.cors_origins),
        allow_methods=[apigateway.CorsHttpMethod.ANY],
        allow_headers=["accept", "authorization", "content-type", "x-amz-date", "x-amz-security-token"],
        expose_headers=[
            "fenceline-position",
            "fenceline-log-start-offset",
            "fenceline-next-offset",
            "fenceline-last-stable-offset",
        ],
        max_age=cdk.Duration.hours(1),
    )
