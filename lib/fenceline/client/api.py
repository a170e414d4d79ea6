"""Every request of the service, over one transport. ``Client`` and all that it makes send their requests by it.

Rule: a method is what the contract lets a caller do in one request, returned or raised as transport.py says.

Not here: what lives on after its request, such as a producer, a reader or a session.
"""

from __future__ import annotations

from typing import Self

import httpx

from fenceline.client.calls import public
from fenceline.client.requests.groups import GroupRequests
from fenceline.client.requests.log import LogRequests
from fenceline.client.requests.poll import PollRequests
from fenceline.client.requests.regions import RegionRequests
from fenceline.client.requests.sessions import SessionRequests
from fenceline.client.requests.subscriptions import SubscriptionRequests
from fenceline.client.requests.transactions import TransactionRequests
from fenceline.client.signing import SignedRequests
from fenceline.client.transport import Transport
from fenceline.runtime import Runtime, ThreadRuntime


@public
class ApiClient(
    LogRequests,
    PollRequests,
    SessionRequests,
    SubscriptionRequests,
    GroupRequests,
    TransactionRequests,
    RegionRequests,
):
    """The requests of the service at ``url``. Its arguments are those of ``Client``.

    Safe to share between threads; a context manager that closes its connections.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int = 30_000,
        retry_ms: int = 30_000,
        client_name: str | None = None,
        region: str | None = None,
        runtime: Runtime | None = None,
        http: httpx.BaseTransport | None = None,
    ) -> None:
        self.runtime = runtime or ThreadRuntime()
        self.client_name = client_name
        self._transport = Transport(
            url,
            timeout_ms=timeout_ms,
            retry_ms=retry_ms,
            runtime=self.runtime,
            auth=None if region is None else SignedRequests(region),
            http=http,
        )

    @property
    def url(self) -> str:
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._transport.is_closed

    def close(self) -> None:
        """Close the connections, and send nothing again from now on."""
        self._transport.close()
