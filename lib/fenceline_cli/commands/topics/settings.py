"""A topic's settings as people read and write them: with units, defaults and meanings.

Rule: all of it comes from one table, ``fenceline.model.topic_config.NAMES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline.errors import InvalidRequestError
from fenceline.limits import INT64_MAX
from fenceline.model.topic_config import NAMES, ConfigValue
from fenceline_cli import units
from fenceline_cli.output import CommandError

COLUMNS = ("setting", "value", "from")


def help_text() -> str:
    """Return every setting with what it takes, for the end of a help text."""
    lines = ["\b", "Settings for --config, each with its default:"]
    for name, spec in NAMES.items():
        takes = ""
        if spec.choices:
            takes = f" ({', '.join(spec.choices)})"
        elif isinstance(spec.default, bool):
            takes = " (true, false)"
        lines += [f"  {name}={shown(name, spec.default)}{takes}", f"      {spec.what}"]
    durations, sizes = ", ".join(units.DURATIONS), ", ".join(units.SIZES)
    lines += [f"Durations take a unit ({durations}), or are in ms."]
    lines += [f"Sizes take a unit ({sizes}), or are in bytes."]
    return "\n".join(lines)


def parse(settings: Sequence[str] | None) -> dict[str, ConfigValue]:
    """Return the config of ``NAME=VALUE`` settings. A name that is not known here is left to the service.

    Raises:
        CommandError: A setting has no value.
        InvalidRequestError: A duration or a size is invalid.
    """
    parsed: dict[str, ConfigValue] = {}
    for setting in settings or []:
        name, equals, text = setting.partition("=")
        if not equals:
            raise CommandError(f"--config takes NAME=VALUE, as in retention.ms=7d: {setting}")
        parsed[name] = _value(name, text)
    return parsed


def _value(name: str, text: str) -> ConfigValue:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    unit = NAMES[name].unit if name in NAMES else None
    if unit is None:
        return text
    try:
        return units.parse(text, unit, plain="ms" if unit == "ms" else "B")
    except units.UnitError as error:
        raise InvalidRequestError(f"{name} {error}", field=f"config.{name}") from error


def shown(name: str, value: ConfigValue) -> str:
    """Return a value as a person would write it, with its largest unit."""
    if isinstance(value, bool):
        return str(value).lower()
    unit = NAMES[name].unit if name in NAMES else None
    if unit is None or not isinstance(value, int) or value == INT64_MAX:
        return str(value)
    return units.shown(value, unit)


def effective(config: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Return every setting in force: those that were set, and the defaults of the others."""
    return {**{name: spec.default for name, spec in NAMES.items()}, **config}


def rows(config: Mapping[str, ConfigValue]) -> list[tuple[str, str, str]]:
    """Return a row of ``COLUMNS`` for each setting in force."""
    return [
        (name, shown(name, value), "set" if name in config else "default") for name, value in effective(config).items()
    ]
