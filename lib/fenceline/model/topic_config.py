"""Topic configuration: Kafka's names, meanings and defaults (contract, "Topics"; KIP-27).

Rule: a topic stores only what was set. The default of a name is here, and nowhere else.

Not here: where a setting takes effect; see ``append.entries.batch`` and ``sweeper``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from fenceline import limits
from fenceline.answers import Default, Keys, OneOf, Titled, Whole
from fenceline.errors import InvalidRequestError

ConfigValue: TypeAlias = int | str | bool


@dataclass(frozen=True, slots=True)
class Name:
    """One name: its meaning, the values it takes, and its default.

    Attributes:
        what: Its meaning, in a sentence, for help, the reference and the served document.
        unit: What its integers count, if that is ms or bytes.
    """

    default: ConfigValue
    what: str
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = limits.INT64_MAX
    unit: Literal["ms", "bytes"] | None = None

    @property
    def kind(self) -> Any:
        """The type of its values, with their bounds."""
        if isinstance(self.default, bool):
            return bool
        return (
            Annotated[str, OneOf(*self.choices)] if self.choices else Annotated[int, Whole(self.lowest, self.highest)]
        )


NAMES: Mapping[str, Name] = {
    "cleanup.policy": Name(
        "delete",
        "What happens to old records: deleted, compacted by key, or both.",
        choices=("delete", "compact", "compact,delete"),
    ),
    "compaction.order": Name(
        "offset",
        "Which record of a key stays: the last, or the one of the greatest time.",
        choices=("offset", "timestamp"),
    ),
    "retention.ms": Name(604_800_000, "How long records are kept; -1 is forever.", lowest=-1, unit="ms"),
    "retention.bytes": Name(-1, "How many bytes a partition keeps; -1 is all.", lowest=-1, unit="bytes"),
    "delete.retention.ms": Name(
        86_400_000,
        "How long compaction keeps tombstones for readers; -1 is forever.",
        lowest=-1,
        unit="ms",
    ),
    "max.message.bytes": Name(
        limits.MESSAGE_BYTES_DEFAULT,
        "How large a batch may be when stored.",
        highest=limits.MESSAGE_BYTES_MAX,
        unit="bytes",
    ),
    "message.timestamp.type": Name(
        "CreateTime",
        "The time of a record: its producer's, or the append's.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    "message.timestamp.before.max.ms": Name(
        limits.INT64_MAX, "How far a record's time may lie before the append.", unit="ms"
    ),
    "message.timestamp.after.max.ms": Name(3_600_000, "How far a record's time may lie after the append.", unit="ms"),
    "compression.type": Name(
        "producer",
        "The codec of JSON records (producer: none); binary batches keep theirs.",
        choices=("producer", "none", "gzip", "snappy", "lz4", "zstd"),
    ),
    "producer.id.expiration.ms": Name(
        86_400_000, "How long an idle producer's sequence is remembered.", lowest=1, unit="ms"
    ),
    "check.expected.offsets": Name(True, "Whether expected offsets are compared (KIP-27)."),
}


Config: TypeAlias = Annotated[
    Mapping[str, ConfigValue],
    Titled("Config", "A topic's settings that were set, by Kafka's names."),
    Keys(lambda: {name: Annotated[spec.kind, spec.what, Default(spec.default)] for name, spec in NAMES.items()}),
]

DEFAULTS: Mapping[str, Any] = {name: spec.default for name, spec in NAMES.items()}


def merged(config: Mapping[str, ConfigValue], changes: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return ``config`` with ``changes`` made; ``None`` sets a name back to its default.

    Raises:
        InvalidRequestError: The contract does not list the name, or allow the value, alone or beside the others;
            ``field`` names it.
    """
    result = dict(config)
    for name, changed in changes.items():
        if name not in NAMES:
            known = ", ".join(sorted(NAMES))
            raise InvalidRequestError(
                f"unknown config name; known names are {known}: name={name}", field=f"config.{name}"
            )
        if changed is None:
            result.pop(name, None)
        else:
            result[name] = _checked(name, changed)
    settings = {**DEFAULTS, **result}
    if settings["compaction.order"] == "timestamp" and settings["delete.retention.ms"] != -1:
        # An older record may arrive after its key's tombstone. If the tombstone were gone, the record would bring the
        # key back in one region alone.
        raise InvalidRequestError(
            "delete.retention.ms must be -1 with compaction.order=timestamp, which keeps every tombstone; set both",
            field="config.delete.retention.ms",
        )
    return result


def _checked(name: str, changed: Any) -> ConfigValue:
    spec = NAMES[name]
    where = f"config.{name}"
    if isinstance(spec.default, bool):
        if not isinstance(changed, bool):
            raise InvalidRequestError(f"{name} must be true or false", field=where)
        return changed
    if spec.choices:
        if changed not in spec.choices:
            raise InvalidRequestError(f"{name} must be one of {', '.join(spec.choices)}", field=where)
        return str(changed)
    if not isinstance(changed, int) or isinstance(changed, bool):
        raise InvalidRequestError(f"{name} must be an integer", field=where)
    if not spec.lowest <= changed <= spec.highest:
        raise InvalidRequestError(f"{name} must be from {spec.lowest} to {spec.highest}", field=where)
    return changed
