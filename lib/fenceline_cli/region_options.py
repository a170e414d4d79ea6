"""Options that name regions: a topic's list ``a,b``, and a region with its service's URL, ``a=URL``.

Rule: a text of another form is refused as misuse, before any request is sent.

Not here: whether a region is a peer of the service, which the service judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from fenceline.errors import FencelineError, RetryError
from fenceline.model.topic import LEGAL_REGION
from fenceline_cli.options import connect, signing_region
from fenceline_cli.output import RegionError, RegionSilentError

if TYPE_CHECKING:
    from fenceline.client import Client

_OF_AWS = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+", re.ASCII)  # the form of its regions' names


class RegionUrl(NamedTuple):
    """A region, and the URL of the service there."""

    region: str
    url: str


def region_name(text: str) -> str:
    """Check the name of a region.

    Raises:
        BadParameter: No region can have this name.
    """
    if not LEGAL_REGION.fullmatch(text):
        raise typer.BadParameter(f"a region's name must be 1 to 63 of the characters a-z 0-9 -, not {text!r}")
    return text


def is_of_aws(region: str) -> bool:
    """Return whether a region's name has the form of AWS's own."""
    return _OF_AWS.fullmatch(region) is not None


def names(text: str | None) -> str | None:
    """Check a list of regions.

    Raises:
        BadParameter: A name is missing, or given twice.
    """
    if text is None:
        return None
    listed = names_of(text)
    if not all(listed):
        raise typer.BadParameter(f"takes names with commas between them, as in eu-west-1,us-east-1: {text!r}")
    twice = next((name for name in listed if listed.count(name) > 1), None)
    if twice is not None:
        raise typer.BadParameter(f"takes each region once; leave out one {twice}: {text!r}")
    return text


def names_of(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def region_url(text: str | RegionUrl) -> RegionUrl:
    """Parse ``REGION=URL``.

    Raises:
        BadParameter: The text has another form.
    """
    if isinstance(text, RegionUrl):
        return text
    region, _, url = text.partition("=")
    parts = urlsplit(url)
    if not region or parts.scheme not in ("http", "https") or not parts.netloc:
        raise typer.BadParameter(f"takes REGION=URL, as in b=http://127.0.0.1:8081: {text!r}")
    return RegionUrl(region, url)


def connect_to(named: RegionUrl, **given: Any) -> Client:
    """Return a client of the service of a region; ``given`` are further arguments of ``Client``.

    If requests are signed, those to the client's region are signed for the region of AWS of the same name. Where AWS
    has no region of that name, the option --region says for which one they are signed.
    """
    if signing_region.get() is not None and is_of_aws(named.region):
        given["region"] = named.region
    return connect(named.url, **given)


@contextmanager
def naming(named: RegionUrl, option: str) -> Iterator[None]:
    """Name the region in each error of its service, and the option that gives its URL.

    Raises:
        RegionSilentError: The service did not answer.
        RegionError: The service answered with an error.
    """
    try:
        yield
    except FencelineError as error:
        kind = RegionSilentError if isinstance(error, RetryError) else RegionError
        raise kind(error, named.region, option) from error


def check_region(client: Client, named: RegionUrl, option: str) -> None:
    """Return if the service at a URL is in the region that was named.

    Raises:
        BadParameter: It is in another region.
        RegionError: It answered with an error, or not at all.
    """
    with naming(named, option):
        region = client.region()
    if region != named.region:
        raise typer.BadParameter(
            f"the service at {named.url} is region {region}, not {named.region}; give {option} {region}={named.url}, or"
            f" the URL of {named.region}"
        )


Regions = Annotated[
    str | None,
    typer.Option(
        "--regions",
        metavar="A,B,…",
        callback=names,
        help="The regions that exchange the topic's records, the service's own among them; the others must be peers"
        " of the service. A topic is created in each region by itself: records travel once both sides list each"
        " other. Left out, only the own region.",
    ),
]
