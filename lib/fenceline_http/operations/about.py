"""What the admin function answers about the service itself: its health, and this contract."""

from __future__ import annotations

from fenceline_http.json_schema import STRING, Named, const, obj
from fenceline_http.route import Route

_LINKS = Named("Links", obj({"openapi": STRING, "docs": STRING, "health": STRING, "topics": STRING}))

ROUTES = (
    Route(
        "GET",
        "/v1/health",
        "admin.health",
        operation="getHealth",
        tag="Service",
        summary="Say that this function works",
        description="Says that the service answers, with its region and version. It asks no store.",
        answers={200: Named("Health", obj({"status": const("ok"), "region": STRING, "version": STRING}))},
        answer={"status": "ok", "region": "us-east-1", "version": "0.1.0"},
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
        answers={200: Named("Service", obj({"name": const("fenceline"), "version": STRING, "links": _LINKS}))},
        answer={
            "name": "fenceline",
            "version": "0.1.0",
            "links": {"openapi": "/v1/openapi.json", "docs": "/docs", "health": "/v1/health", "topics": "/v1/topics"},
        },
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
)
