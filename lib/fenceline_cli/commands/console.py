"""``fenceline console``: the console on this machine, in front of a service elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from fenceline_cli.options import DEFAULT_URL, Url, signing_region
from fenceline_cli.region_options import RegionUrl, is_of_aws, region_name, region_url

if TYPE_CHECKING:
    from fenceline_cli.console_proxy.upstream import Upstream

app = typer.Typer()

LOCAL_S, AWS_S = 1.0, 3.0


@app.command(
    epilog="Example: fenceline console --url https://abc123.execute-api.eu-west-1.amazonaws.com --region eu-west-1\n\n"
    "Example: fenceline console --at eu-west-1=https://abc… --at us-east-1=https://def… --write --open\n\n"
    "Example: fenceline console --at eu=http://127.0.0.1:8081 --at us=http://127.0.0.1:8082 --port 0"
)
def console(
    ctx: typer.Context,
    url: Url = DEFAULT_URL,
    region: Annotated[
        str | None,
        typer.Option(
            "--region",
            metavar="REGION",
            callback=lambda text: text and region_name(text),
            help="The service's region on AWS; requests are then signed with your credentials.",
        ),
    ] = None,
    at: Annotated[
        list[RegionUrl] | None,
        typer.Option(
            "--at",
            metavar="REGION=URL",
            parser=region_url,
            help="A region with the URL of its service, in place of --url; repeat for more. Requests to a region of AWS"
            " at https:// are signed.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the console change something; left out, it only reads.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0 takes a free one.")] = 8090,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the console in your browser.")] = False,
    no_export: Annotated[bool, typer.Option("--no-export", help="Offer no download and no copying of values.")] = False,
    refresh: Annotated[
        float | None,
        typer.Option(
            min=0.2,
            max=3600,
            metavar="SECONDS",
            help="The pause between two looks of a page that follows; left out, 1 s, and 3 s on AWS.",
        ),
    ] = None,
) -> None:
    """Serve the console on this machine until Ctrl-C, in front of a service elsewhere, as of a region on AWS.

    The console's pages come from this package, and what they ask goes on to the service. With --region each request is
    signed with the credentials that every AWS tool finds. They stay in this process. The command listens on 127.0.0.1
    alone, and refuses the pages of other origins. Any program on this machine can ask it, and so look with your rights.

    Without --write only GET goes on, whatever a page asks. --no-export hides what copies values out of the page; a
    person who may look can still copy by hand.
    """
    from fenceline.client.proxy import without_password
    from fenceline_cli.console_proxy import app as application  # only here: other commands work without the packages
    from fenceline_cli.console_proxy import server
    from fenceline_cli.console_proxy.region_usage import RegionUsage
    from fenceline_cli.dev_server.web_origin import WebOrigins

    named = _named(ctx, url, region, at or [])
    upstreams = [_upstream(one, region) for one in named]
    is_signed = any(upstream.is_signed for upstream in upstreams)
    rights = application.Rights(can_write=write, has_export=not no_export)
    refresh_ms = round((refresh or (AWS_S if is_signed else LOCAL_S)) * 1_000)
    with server.listen(port) as listening:
        proxy = application.ConsoleProxy(upstreams, rights, refresh_ms, WebOrigins(server.HOST), RegionUsage())
        right = "may change" if write else "only reads"
        shown = "\n".join(f"it {right} {one.region}: {without_password(one.url)}" for one in named)
        server.serve(proxy, listening, shown=shown, is_opened=is_opened)


def _named(ctx: typer.Context, url: str, region: str | None, at: Sequence[RegionUrl]) -> Sequence[RegionUrl]:
    """Return the regions that are shown.

    Raises:
        BadParameter: A URL is none, a region is named twice, or both --url and --at name services.
    """
    source = ctx.get_parameter_source("url")
    if at:
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter("takes the place of --url; give one of them", param_hint="'--at'")
        names = [one.region for one in at]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise typer.BadParameter(f"names the region {twice} twice; give each once", param_hint="'--at'")
        return [RegionUrl(region_name(one.region), one.url) for one in at]
    try:
        region_url(f"x={url}")
    except typer.BadParameter:
        raise typer.BadParameter(
            f"takes the URL of a service, as in http://127.0.0.1:8080: {url!r}", param_hint="'--url'"
        ) from None
    return [RegionUrl(region or signing_region.get() or urlsplit(url).netloc.rpartition("@")[2], url)]


def _upstream(named: RegionUrl, region: str | None) -> Upstream:
    """Return the service of a region, its requests signed if it is on AWS, or --region is given."""
    from fenceline_cli.console_proxy.upstream import Upstream

    chosen = region or signing_region.get()
    if chosen is None and not named.url.startswith("https://"):
        return Upstream(named.region, named.url)
    signed_for = named.region if is_of_aws(named.region) else chosen
    if signed_for is None:
        return Upstream(named.region, named.url)
    from fenceline.client.signing import SignedRequests

    return Upstream(named.region, named.url, region=signed_for, auth=SignedRequests(signed_for))
