"""``fenceline topic``: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from fenceline.config import ConfigValue
from fenceline.topics import Topic
from fenceline_cli.options import DEFAULT_URL, AsJson, TopicName, Url, connect
from fenceline_cli.output import CommandError, print_json, print_rows, utc
from fenceline_cli.partition_commands import OFFSET_COLUMNS, offset_rows

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A setting, by Kafka's name; may be given several times."),
]


@app.command(
    epilog="Example: fenceline topic create orders --partitions 8 --config retention.ms=86400000\n\n"
    "Example: fenceline topic create prices --config cleanup.policy=compact"
)
def create(
    topic: TopicName,
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions; they can only grow.")] = 1,
    config: Config = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a topic."""
    with connect(url) as client:
        created = client.create_topic(topic, partitions=partitions, config=_config(config))
    typer.echo(f"created {created.name} partitions={created.partitions} topic_id={created.topic_id}")


@app.command("list", epilog="Example: fenceline topic list --prefix orders")
def list_topics(
    prefix: Annotated[str, typer.Option(help="Only topics whose name begins so.")] = "",
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
    """Show a topic, and the offsets of its partitions."""
    with connect(url) as client:
        described = client.topic(topic)
        rows = offset_rows(client, topic, range(described.partitions))
    if as_json:
        offsets = [dict(zip(OFFSET_COLUMNS, row, strict=True)) for row in rows]
        print_json({**asdict(described), "offsets": offsets})
        return
    typer.echo(f"topic\t{described.name}")
    typer.echo(f"topic_id\t{described.topic_id}")
    typer.echo(f"created_at\t{utc(described.created_at)}")
    typer.echo(f"regions\t{' '.join(described.regions)}")
    typer.echo(f"config\t{_config_line(described)}")
    print_rows(OFFSET_COLUMNS, rows)


@app.command(
    epilog="Example: fenceline topic alter orders --partitions 16\n\n"
    "Example: fenceline topic alter orders --config retention.ms=3600000 --unset compression.type"
)
def alter(
    topic: TopicName,
    partitions: Annotated[int | None, typer.Option(min=1, help="More partitions than now.")] = None,
    config: Config = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A setting to return to its default.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Add partitions to a topic, or change its settings; what is not named stays."""
    changes: dict[str, ConfigValue | None] = {**_config(config), **dict.fromkeys(unset or [])}
    if partitions is None and not changes:
        raise CommandError("nothing to alter: give --partitions, --config NAME=VALUE or --unset NAME")
    with connect(url) as client:
        altered = client.alter_topic(topic, partitions=partitions, config=changes or None)
    typer.echo(f"altered {altered.name} partitions={altered.partitions} config={_config_line(altered) or '(defaults)'}")


@app.command(epilog="Example: fenceline topic delete orders --yes")
def delete(
    topic: TopicName,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a topic and all its records. It cannot be undone."""
    if not is_sure:
        if not sys.stdin.isatty():
            raise CommandError("a topic is deleted for good: say --yes")
        typer.confirm(f"Delete {topic} and all its records?", abort=True)
    with connect(url) as client:
        client.delete_topic(topic)
    typer.echo(f"deleted {topic}")


def _config(settings: list[str] | None) -> dict[str, ConfigValue]:
    parsed: dict[str, ConfigValue] = {}
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals:
            raise CommandError(f"--config takes NAME=VALUE, as in retention.ms=86400000: {setting}")
        parsed[name] = _value(text)
    return parsed


def _value(text: str) -> ConfigValue:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _config_line(topic: Topic) -> str:
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in topic.config.items()
    )
