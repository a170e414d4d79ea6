"""Topic configuration: Kafka's names, meanings and defaults (API.md, "Topics"; KIP-27).

The rule: a topic stores only what was set; what a name means when it was not set is here, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fenceline import limits
from fenceline.errors import InvalidRequestError

ConfigValue: TypeAlias = int | str | bool


@dataclass(frozen=True, slots=True)
class _Name:
    default: ConfigValue
    choices: tuple[str, ...] = ()
    lowest: int = 0
    highest: int = limits.INT64_MAX


NAMES: Mapping[str, _Name] = {
    "cleanup.policy": _Name("delete", choices=("delete", "compact")),
    "retention.ms": _Name(604_800_000, lowest=-1),
    "retention.bytes": _Name(-1, lowest=-1),
    "max.message.bytes": _Name(limits.MESSAGE_BYTES_DEFAULT, highest=limits.MESSAGE_BYTES_MAX),
    "message.timestamp.type": _Name("CreateTime", choices=("CreateTime", "LogAppendTime")),
    "message.timestamp.before.max.ms": _Name(limits.INT64_MAX),
    "message.timestamp.after.max.ms": _Name(3_600_000),
    "compression.type": _Name("producer", choices=("producer", "none", "gzip", "snappy", "lz4", "zstd")),
    "producer.id.expiration.ms": _Name(86_400_000, lowest=1),
    "check.expected.offsets": _Name(True),
}


DEFAULTS: Mapping[str, Any] = {name: spec.default for name, spec in NAMES.items()}


def merged(config: Mapping[str, ConfigValue], changes: Mapping[str, Any]) -> dict[str, ConfigValue]:
    """Return ``config`` with ``changes`` made, ``None`` returning a name to its default.

    Raises:
        InvalidRequestError: A name or value is not one of API.md's; ``field`` says which.
    """
    result = dict(config)
    for name, changed in changes.items():
        if name not in NAMES:
            known = ", ".join(sorted(NAMES))
            raise InvalidRequestError(f"unknown config name; known are {known}: name={name}", field=f"config.{name}")
        if changed is None:
            result.pop(name, None)
        else:
            result[name] = _checked(name, changed)
    return result


def _checked(name: str, changed: Any) -> ConfigValue:
    spec = NAMES[name]
    where = f"config.{name}"
    if isinstance(spec.default, bool):
        if not isinstance(changed, bool):
            raise InvalidRequestError(f"{name} is true or false", field=where)
        return changed
    if spec.choices:
        if changed not in spec.choices:
            raise InvalidRequestError(f"{name} is one of {', '.join(spec.choices)}", field=where)
        return str(changed)
    if not isinstance(changed, int) or isinstance(changed, bool):
        raise InvalidRequestError(f"{name} is an integer", field=where)
    if not spec.lowest <= changed <= spec.highest:
        raise InvalidRequestError(f"{name} is from {spec.lowest} to {spec.highest}", field=where)
    return changed
