"""The route table: every path that is served, with its methods.

Rule: a route is declared once, in `operations`. The first word of its handler is the Lambda function that serves it.
The deployed API, the local server and the OpenAPI document are made of this table. Paths are as in the contract.
"""

from __future__ import annotations

from typing import get_args

from fenceline_http.operations import admin, produce, read, sessions, subscriptions, transactions
from fenceline_http.route import Function, Route

FUNCTIONS: tuple[Function, ...] = get_args(Function)
ROUTES: tuple[Route, ...] = (
    *produce.ROUTES,
    *read.ROUTES,
    *admin.ROUTES,
    *subscriptions.ROUTES,
    *sessions.ROUTES,
    *transactions.ROUTES,
)
