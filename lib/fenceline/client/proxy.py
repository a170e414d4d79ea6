"""The proxy that the environment names for a service's URL, as HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, and NO_PROXY.

Rule: only the proxy of this one URL is looked at, so that a proxy which the environment names for other URLs stops no
program. Requests to this machine go through no proxy.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_PASSWORD = re.compile(r"(?<=://)[^/]*@")


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy that requests to ``url`` go through, or ``None`` for none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None  # no URL: the request that is sent there is refused
    if not host or _is_this_machine(host):
        return None
    if proxy_bypass(host) or proxy_bypass(f"{host}:{port}"):
        return None
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if not found or "://" in found else f"http://{found}"


def without_password(url: str) -> str:
    """Return a URL without the name and password in it, for a message."""
    return _PASSWORD.sub("", url)


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
