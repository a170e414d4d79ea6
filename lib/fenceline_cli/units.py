"""Durations and sizes as people write them: ``7d``, ``30s``, ``2MiB``.

Rule: a number without a unit has the unit of its option or setting. The error about an unknown unit lists the known
ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import typer

Kind = Literal["ms", "bytes"]

DURATIONS: Mapping[str, int] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES: Mapping[str, int] = {
    "B": 1,
    "KB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
    "TB": 10**12,
    "TiB": 2**40,
}
_UNITS: Mapping[Kind, Mapping[str, int]] = {"ms": DURATIONS, "bytes": SIZES}
_EXAMPLES: Mapping[Kind, str] = {"ms": "7d", "bytes": "2MiB"}
_FORM = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([A-Za-z]*)")


class UnitError(ValueError):
    """A text that is no duration, or no size; the message lists the units."""


def parse(text: str, kind: Kind, *, plain: str) -> int:
    """Return the ms, or the bytes, of ``text``.

    Args:
        plain: The unit of a number without one.

    Raises:
        UnitError: ``text`` is no number with a unit, or makes a fraction of a ms or a byte.
    """
    units = _UNITS[kind]
    found = _FORM.fullmatch(text.strip())
    unit = plain if found is None else found[2] or plain
    if found is None or unit not in units:
        listed = ", ".join(units)
        raise UnitError(
            f"takes a number with a unit ({listed}), as in {_EXAMPLES[kind]}, or one in {plain} without a unit: {text}"
        )
    amount = Decimal(found[1]) * units[unit]
    if amount != int(amount):
        raise UnitError(f"takes a whole number of {kind}: {text}")
    return int(amount)


def shown(amount: int, kind: Kind) -> str:
    """Return ``amount`` in the largest unit of which it is a whole number; for sizes, in a binary unit."""
    if amount <= 0:
        return str(amount)
    units = DURATIONS if kind == "ms" else {name: of for name, of in SIZES.items() if "i" in name or name == "B"}
    unit = max((name for name, of in units.items() if amount % of == 0), key=lambda name: units[name])
    return f"{amount // units[unit]}{unit}"


def seconds(text: str | float) -> float:
    """Parse an option that takes seconds, or a duration with its unit."""
    try:
        return parse(str(text), "ms", plain="s") / 1_000
    except UnitError as error:
        raise typer.BadParameter(str(error)) from error
