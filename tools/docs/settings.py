"""The pages of a topic's settings and of a server's settings, made of the tables that the service judges by."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from fenceline import limits
from fenceline.model.topic_config import NAMES, Name
from fenceline.settings import Settings
from fenceline_cli.commands.topics.settings import shown
from tools.docs import cli
from tools.docs.markdown_text import block, filled, table, with_code

TOPIC_SETTINGS = "docs/reference/topic-settings.md"
SERVER_SETTINGS = "docs/reference/settings.md"
SOURCE = "lib/fenceline/model/topic_config.py, lib/fenceline/settings.py and tools/docs/settings.py"

# What follows from each setting of a topic, and what it costs.
EFFECTS: Mapping[str, str] = {
    "cleanup.policy": "`delete` applies retention by time and size. `compact` keeps the newest record of each key in a "
    "view next to the log, and every record then needs a key. With `compact,delete` retention moves the log start, "
    "too, and what lies below it leaves the view, newest or not. See [compaction](../understand/compaction.md).",
    "compaction.order": "`offset` keeps the last record of a key. `timestamp` keeps the one with the greatest time, so "
    "that all regions come to the same table, whatever order their records arrive in. The price is that tombstones "
    "stay for ever: `timestamp` needs `delete.retention.ms=-1`, in the same request or before.",
    "retention.ms": "The sweeper moves the log start over segments that were appended earlier, whatever time their "
    "records have. A reader below the new log start gets [OFFSET_OUT_OF_RANGE](errors.md#offset_out_of_range). "
    "`fenceline topic alter` asks before it shortens retention, because deleted records do not come back.",
    "retention.bytes": "A segment goes when at least so many bytes are kept without it, as in Kafka. Each partition "
    "counts by itself. Records at or beyond the last stable offset are kept, so that an open transaction stays whole.",
    "delete.retention.ms": "A reader of a compacted view that is not through within this time may be told to begin "
    "again, by [VIEW_MOVED](errors.md#view_moved), because it may have missed a deletion. 0 leaves all tombstones out.",
    "max.message.bytes": "A larger batch is refused with [MESSAGE_TOO_LARGE](errors.md#message_too_large). The Python "
    "client splits such a batch and sends it again, unless it has an expected offset or an earlier answer was lost.",
    "message.timestamp.type": "With `LogAppendTime` the server sets the time of each record, and answers a produce "
    "with it. The time of the producer is lost.",
    "message.timestamp.before.max.ms": "A record from before that is refused with "
    "[INVALID_TIMESTAMP](errors.md#invalid_timestamp).",
    "message.timestamp.after.max.ms": "A record from farther ahead is refused with "
    "[INVALID_TIMESTAMP](errors.md#invalid_timestamp).",
    "compression.type": "It says how the service encodes records that arrive as JSON. A binary batch, such as the "
    "Python client's producer sends, keeps its codec.",
    "producer.id.expiration.ms": "A producer that is idle for longer is forgotten in that partition. What it sends "
    "again after that is stored again, so make it longer than any retry of yours.",
    "check.expected.offsets": "With `false` the log accepts an expected offset and does not compare it. Answers then "
    "have `expected_offset_checked: false`. Where a request names an expectation, a function reads this setting first.",
}
_TYPES = {
    "ms": "ms; the command line also takes a unit, as `7d`",
    "bytes": "bytes; the command line also takes a unit, as `2MiB`",
}


def pages() -> dict[str, str]:
    return {TOPIC_SETTINGS: _of_topics(), SERVER_SETTINGS: _of_servers()}


def _of_topics() -> str:
    return "".join(
        [
            "# Topic settings\n\n",
            filled(
                "This page has every setting of a topic, with its default, the values it takes and what follows from "
                "it. Names, meanings and defaults are Kafka's, where Kafka has the setting. A topic shows only what "
                "was set, and `fenceline topic describe` shows all that is in force."
            ),
            "\n\n",
            block(
                "fenceline topic create prices --config cleanup.policy=compact --config max.message.bytes=2MiB\n"
                "fenceline topic alter prices --config retention.ms=30d --unset max.message.bytes",
                "sh",
            ),
            "\n",
            filled(
                "Over HTTP a setting is a member of `config` in `POST /v1/topics` and `PATCH /v1/topics/{topic}`. "
                "Numbers are JSON numbers, truth is a boolean, and `null` returns a setting to its default. A deployed "
                f"function may judge by a setting that is up to {limits.ITEM_AGE_MS_MAX // 1000} s old, because it "
                "caches the topic. Another name, or a value outside the range, is "
                "[INVALID_REQUEST](errors.md#invalid_request)."
            ),
            "\n",
            *(_setting(name, spec) for name, spec in NAMES.items()),
        ]
    )


def _setting(name: str, spec: Name) -> str:
    default = f"`{_json(spec.default)}`"
    if shown(name, spec.default) != _json(spec.default):
        default += f", which is {shown(name, spec.default)}"
    if spec.default == limits.INT64_MAX:
        default += ": no limit"
    facts = table(("default", "takes"), [(default, _takes(spec))])
    heading = f"## {name} {{ #{name.replace('.', '-')} }}"
    return f"\n{heading}\n\n{with_code(spec.what)}\n\n{facts}\n{filled(EFFECTS.get(name, ''))}\n"


def _takes(spec: Name) -> str:
    if spec.choices:
        return ", ".join(f"`{one}`" for one in spec.choices)
    if isinstance(spec.default, bool):
        return "`true` or `false`"
    bounds = f"from {spec.lowest}" + (" on" if spec.highest == limits.INT64_MAX else f" to {spec.highest}")
    return f"a whole number {bounds}, in {_TYPES[spec.unit]}" if spec.unit else f"a whole number {bounds}"


def _json(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_servers() -> str:
    rows = [
        (f"`FENCELINE_{field.name.upper()}`", f"`{_json(field.default)}`" if field.default != () else "", what)
        for field, what in ((field, meanings().get(field.name, "")) for field in dataclasses.fields(Settings))
    ]
    rows = [(name, "" if default == "``" else default, what) for name, default, what in rows]
    return "".join(
        [
            "# Environment\n\n",
            filled(
                "This page has the environment variables that fenceline reads: those of a client or a command, and "
                "those of a server or a function. The variables of a deployed function are written by the deployment; "
                "[settings of a deployment](../operate/settings.md) has what you choose there."
            ),
            "\n\n",
            block("export FENCELINE_URL=http://127.0.0.1:8080\nfenceline topic list", "sh"),
            "\n## Of a client and a command\n\n",
            *(_variable(name, what) for name, what in sorted(of_commands().items())),
            filled(
                "Credentials come from where AWS's own tools find them: `AWS_PROFILE`, `AWS_ACCESS_KEY_ID` and the "
                "rest. [`fenceline lock`](cli/lock.md) sets variables for the command that it runs."
            ),
            "\n\n## Of a server and a function\n\n",
            filled(
                "`fenceline dev` sets those that it needs from its options, and a deployment sets them for its "
                "functions. They matter to you only where you run a function yourself."
            ),
            "\n\n",
            *(_variable(name, what, default) for name, default, what in rows),
        ]
    )


def _variable(name: str, what: str, default: str = "") -> str:
    """Return a part of its own, so that a search for the variable's name finds it."""
    return f"### {name}\n\n{filled(f'{what} Default: {default}.' if default else what)}\n\n"


def of_commands() -> dict[str, str]:
    """Return what each environment variable of the command line means, as the option's help says it."""
    found = {}
    for one in [cli.whole(), *cli.commands()]:
        for option in one.options:
            if option.envvar:
                found[f"`{option.envvar}`"] = with_code(f"{option.help} The option is {option.opts[0]}.")
    return found


def meanings() -> dict[str, str]:
    """Return what each field of a server's settings means, from the docstring."""
    arguments = (Settings.__doc__ or "").partition("Args:")[2].partition("Raises:")[0]
    found = re.findall(r"^ {8}(\w+): (.*?)(?=^ {8}\w|\Z)", arguments, re.MULTILINE | re.DOTALL)
    return {name: with_code(text) for name, text in found}
