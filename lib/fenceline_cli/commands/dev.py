"""``fenceline dev``: a service on this machine, on a directory, or on a bucket and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fenceline.settings import PeerSettings, Settings
from fenceline_cli.output import CommandError
from fenceline_cli.region_options import region_name
from fenceline_cli.stores import LOCAL, Data, Items, Objects, chosen, prepare

app = typer.Typer()


@app.command(
    epilog="Example: fenceline dev --data ./data\n\n"
    "Example: fenceline dev --data ./data --host 0.0.0.0 --port 9000 --workers 2 --allowed-host build-box\n\n"
    "Example: fenceline dev --data ./data --cors-origin http://localhost:3000\n\n"
    "Example: fenceline dev --data ./a --region a --port 8081 --peers b=http://127.0.0.1:8082\n\n"
    "Example: fenceline dev --data ./data --no-console\n\n"
    "Example: fenceline dev --objects s3://my-bucket/log --items dynamodb://my-table --create"
)
def dev(
    data: Data = None,
    objects: Objects = "",
    items: Items = "",
    create: Annotated[bool, typer.Option("--create", help="Create the bucket and the table if missing.")] = False,
    region: Annotated[
        str, typer.Option(callback=region_name, help="The name of the region that the log belongs to.")
    ] = LOCAL,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=URL,…",
            help="The other regions that topics may name, and from which they are replicated; may be repeated.",
        ),
    ] = None,
    peer_bucket: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=BUCKET",
            help="The bucket of a peer on S3, or with what its segments' URLs begin; repeat for more. They are fetched"
            " from its own host, and from there.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="How many processes answer requests.")] = 1,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="Let web pages of this origin call, such as http://localhost:3000; repeat for more."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name that clients call this server by, beside localhost and --host; repeat for more."),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console/--no-console", help="Serve the console at /console, for a person's browser.")
    ] = True,
) -> None:
    """Serve the whole HTTP API until Ctrl-C or SIGTERM: from a directory, or from S3 and DynamoDB.

    The server prints a line with its URL when it is ready, and one with the address of its console, which shows topics,
    records, writers and subscriptions in a browser, and may change them as any caller may. Several servers may share
    one directory, or one bucket and table. The standard variables (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_S3, …) say
    how to reach AWS. At its start the server tries the bucket: of several creates of one key at once exactly one must
    win.

    With --peers the server takes records of topics that name several regions from those regions, as long as it runs.
    Each of them must name this one in its own --peers, under the name that --region gives it.

    The server refuses web pages of other origins, unless --cors-origin names them. It also refuses requests that call
    it by another name. It accepts localhost, 127.0.0.1, [::1] and --host. With --host 0.0.0.0 or :: it accepts every
    address; a name needs --allowed-host.
    """
    from fenceline_cli.dev_server.server import serve  # only here: other commands work without the server's packages

    settings = _with_peers(chosen(data, objects, items, region=region), peers or [])
    settings = _with_buckets(settings, peer_bucket or [])
    if create and settings.is_embedded:
        raise CommandError("--create is for --objects and --items; leave it out, since a directory is made anyway")
    prepare(settings, is_create=create)
    given = {"allowed_hosts": allowed_host, "cors_origins": cors_origin}
    named: dict[str, Any] = {name: one for name, one in given.items() if one}
    if not console:
        named["has_console"] = False
    raise typer.Exit(serve(settings, host, port, workers, **named))


def _with_peers(settings: Settings, given: Sequence[str]) -> Settings:
    """Return the settings with the peers that ``--peers`` names.

    Raises:
        BadParameter: A peer is this region, is named twice, or has no URL of its own.
    """
    text = ",".join(given)
    pairs = [pair.strip().partition("=") for pair in text.split(",")] if text.strip() else []
    try:
        peers = tuple(PeerSettings(name.strip(), url.strip()) for name, _, url in pairs)
        for peer in peers:
            _check_url(peer)
        settings = dataclasses.replace(settings, peers=peers)
        by_url: dict[str, str] = {}
        for peer in peers:
            other = by_url.setdefault(peer.url.rstrip("/"), peer.name)
            if other != peer.name:
                raise ValueError(f"the peers {other} and {peer.name} have one URL; give each its own: {peer.url!r}")
        return settings
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--peers'") from error


def _with_buckets(settings: Settings, given: Sequence[str]) -> Settings:
    """Return the settings with the buckets that ``--peer-bucket`` names.

    Raises:
        BadParameter: One is of no peer, or makes no sense.
    """
    buckets: dict[str, list[str]] = {peer.name: [] for peer in settings.peers}
    try:
        for text in given:
            name, _, bucket = (part.strip() for part in text.partition("="))
            if name not in buckets:
                raise ValueError(f"there is no peer {name!r}; write NAME=BUCKET, with a name that --peers gives")
            buckets[name].append(bucket)
        peers = tuple(dataclasses.replace(peer, buckets=tuple(buckets[peer.name])) for peer in settings.peers)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--peer-bucket'") from error
    return dataclasses.replace(settings, peers=peers)


def _check_url(peer: PeerSettings) -> None:
    if not peer.url.startswith(("http://", "https://")):  # a parameter of AWS: only functions look one up
        raise ValueError(f"the URL of the peer {peer.name} must begin with http:// or https://, not {peer.url!r}")
