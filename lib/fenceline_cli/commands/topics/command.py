"""``fenceline topic``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.model.topic_config import NAMES, ConfigValue
from fenceline_cli.commands.topics import settings
from fenceline_cli.commands.topics.partitions import OFFSET_COLUMNS, offset_rows
from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, TopicName, Url, confirm, connect
from fenceline_cli.output import CommandError, print_json, print_rows, utc
from fenceline_cli.region_options import Regions, names_of

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.topic import Topic

app = typer.Typer(
    name="topic",
    no_args_is_help=True,
    help="Create, list, describe, alter and delete topics.",
    epilog="Example: fenceline topic create orders --partitions 8",
)

Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="Set one of the settings listed below; repeat for more."),
]


@app.command(
    epilog="\b\nExample: fenceline topic create orders --partitions 8 \\\n"
    "             --config retention.ms=7d\n\n"
    "\b\nExample: fenceline topic create prices --config cleanup.policy=compact \\\n"
    "             --config max.message.bytes=2MiB\n\n"
    "\b\nExample: fenceline topic create orders --regions a,b \\\n"
    "             --url http://127.0.0.1:8080   (then the same at b's URL)\n\n" + settings.help_text()
)
def create(
    topic: TopicName,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions; they can only grow.")] = 1,
    config: Config = None,
    regions: Regions = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a topic.

    With --regions its records are taken to the other regions, and theirs come here. The others need a topic of the same
    name that lists this region, so run the command once for each region, with its --url.
    """
    listed = None if regions is None else names_of(regions)
    with connect(url) as client:
        created = client.create_topic(topic, partitions=partitions, config=settings.parse(config), regions=listed)
    if as_json:
        print_json(asdict(created))
        return
    shared = "" if regions is None else f" regions={','.join(created.regions)}"
    typer.echo(f"created {created.name} partitions={created.partitions} topic_id={created.topic_id}{shared}")


@app.command("list", epilog="Example: fenceline topic list --prefix orders")
def list_topics(
    prefix: Annotated[str, typer.Option(help="List only topics whose name begins with this.")] = "",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List topics, by name."""
    with connect(url) as client:
        topics = list(client.topics(prefix=prefix))
    if as_json:
        print_json([asdict(topic) for topic in topics])
    else:
        rows = [(topic.name, topic.partitions, _config_line(topic), utc(topic.created_at)) for topic in topics]
        print_rows(("topic", "partitions", "config", "created_at"), rows)


@app.command(epilog="Example: fenceline topic describe orders --json")
def describe(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show a topic, every setting in force, and the offsets of its partitions."""
    with connect(url) as client:
        described = client.topic(topic)
        rows = offset_rows(client, topic, range(described.partitions))
    if as_json:
        offsets = [dict(zip(OFFSET_COLUMNS, row, strict=True)) for row in rows]
        in_force = settings.effective(described.config)
        print_json({**asdict(described), "effective_config": in_force, "offsets": offsets})
        return
    typer.echo(f"topic\t{described.name}")
    typer.echo(f"topic_id\t{described.topic_id}")
    typer.echo(f"created_at\t{utc(described.created_at)}")
    typer.echo(f"regions\t{' '.join(described.regions)}")
    typer.echo(f"config\t{_config_line(described)}")
    print_rows(settings.COLUMNS, settings.rows(described.config))
    print_rows(OFFSET_COLUMNS, rows)


@app.command(
    epilog="Example: fenceline topic alter orders --partitions 16\n\n"
    "\b\nExample: fenceline topic alter orders --config retention.ms=1h \\\n"
    "             --unset compression.type --yes\n\n"
    "\b\nExample: fenceline topic alter orders --regions a,b,c\n"
    "             (in each region, to add c)\n\n" + settings.help_text()
)
def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="The new number of partitions, larger than the present one.")
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Return a setting to its default; repeat for more.")
    ] = None,
    regions: Regions = None,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add partitions to a topic, or change its settings or its regions; what is not named stays as it is.

    The command asks before it sets a shorter retention, which deletes records. With --regions it replaces the whole
    list, in this region alone. Before you remove a region, suspend it, and wait until no other lacks what one has.
    """
    changes: dict[str, ConfigValue | None] = {**settings.parse(config), **dict.fromkeys(unset or [])}
    listed = None if regions is None else names_of(regions)
    if partitions is None and listed is None and not changes:
        raise CommandError("nothing to alter; give --partitions, --config NAME=VALUE, --unset NAME or --regions A,B")
    with connect(url) as client:
        _confirm_loss(client, client.topic(topic), changes, is_sure)
        altered = client.alter_topic(topic, partitions=partitions, config=changes or None, regions=listed)
    if as_json:
        print_json(asdict(altered))
        return
    shared = "" if listed is None else f" regions={','.join(altered.regions)}"
    in_force = _config_line(altered) or "(defaults)"
    typer.echo(f"altered {altered.name} partitions={altered.partitions} config={in_force}{shared}")


@app.command(epilog="Example: fenceline topic delete orders --yes")
def delete(
    topic: TopicName,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a topic and all its records. This cannot be undone; the command asks first."""
    confirm(is_sure, f"Delete {topic} and all its records?", f"this deletes topic {topic} and all its records for good")
    with connect(url) as client:
        client.delete_topic(topic)
    if as_json:
        print_json({"deleted": topic})
    else:
        typer.echo(f"deleted {topic}")


def _confirm_loss(client: Client, described: Topic, changes: Mapping[str, ConfigValue | None], is_sure: bool) -> None:
    """Ask before a shorter retention deletes records that it no longer keeps; not if the topic has none."""
    before, after = described.config, {**described.config, **changes}
    shorter = [name for name in ("retention.ms", "retention.bytes") if _limit(after, name) < _limit(before, name)]
    if is_sure or not shorter:
        return
    bounds = (client.offsets(described.name, number).bounds for number in range(described.partitions))
    if any(at.log_start_offset < at.next_offset for at in bounds):
        what = f"a shorter {' and '.join(shorter)} deletes the records of {described.name} that it no longer keeps"
        confirm(is_sure, f"{what[0].upper()}{what[1:]}. Go on?", what)


def _limit(config: Mapping[str, ConfigValue | None], name: str) -> float:
    value = config.get(name)
    value = NAMES[name].default if value is None else value
    return value if isinstance(value, int) and value >= 0 else float("inf")


def _config_line(topic: Topic) -> str:
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in topic.config.items()
    )
