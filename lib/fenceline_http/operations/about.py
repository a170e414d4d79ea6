"""The admin function's answers about the service itself: its health, and this contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from fenceline.answers import Titled
from fenceline.model.kinds import RegionName
from fenceline_http.json_schema import Named
from fenceline_http.route import Route


class Health(NamedTuple):
    """That a function works."""

    status: Literal["ok"]
    region: str
    version: str
    now: Annotated[int, "The service's clock, in milliseconds since the epoch."]
    peers: Annotated[Sequence[RegionName], "The names of the other regions."]


@Titled("Links")
class Links(NamedTuple):
    """The paths of the parts of the service."""

    openapi: str = "/v1/openapi.json"
    docs: str = "/docs"
    health: str = "/v1/health"
    topics: str = "/v1/topics"


@Titled("Service")
class About(NamedTuple):
    """The service that answers at this URL."""

    name: Literal["fenceline"]
    version: str
    links: Links


ROUTES = (
    Route(
        "GET",
        "/v1/health",
        "admin.health",
        operation="getHealth",
        tag="Service",
        summary="Say that this function works",
        description="Says that the service answers, with its region, its version, its clock and the names of the other "
        "regions. It asks no store.",
        answers={200: Health("ok", "us-east-1", "0.1.0", 1_700_000_000_000, ["eu-west-1"])},
    ),
    Route(
        "GET",
        "/v1/openapi.json",
        "admin.openapi_document",
        operation="getOpenapi",
        tag="Service",
        summary="Return this document",
        description="Returns the OpenAPI document of this contract.",
        answers={200: Named("Document", {"type": "object", "required": ["openapi", "info", "paths"]})},
    ),
    Route(
        "GET",
        "/",
        "admin.links",
        operation="getLinks",
        tag="Service",
        summary="Say what answers here",
        description="Says what answers here, and where its contract is. A browser gets the page of the contract.",
        answers={200: About("fenceline", "0.1.0", Links())},
    ),
    Route(
        "GET",
        "/docs",
        "admin.docs",
        operation="getDocs",
        tag="Service",
        summary="Show this contract as a page",
        description="Returns the contract as a page for people, without scripts.",
        answers={200: None},
        gives_page=True,
    ),
    Route(
        "GET",
        "/docs/errors",
        "admin.errors",
        operation="getErrors",
        tag="Service",
        summary="Explain every error as a page",
        description="Returns a page for people that explains every error code. `help` of an error leads to its part.",
        answers={200: None},
        gives_page=True,
    ),
)
