"""Options as Spark hands them over.

Rule: no option is ignored. An error names the option as the table does, and says what to give.

Rule: a name is looked up without its case and shown with it, because Spark passes names in lower case.

Not here: which options there are; see ``source.options`` and the sink's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from fenceline.errors import InvalidRequestError

_DURATION = re.compile(r"([0-9]+)\s*(ms|s|m|min|h|d)?", re.ASCII | re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_KAFKA = "kafka."
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: Its name as people write it.
        takes: The values it takes, in words: "takes …".
        parse: Returns the value of a text, or raises ``ValueError``; its message may say what is wrong.
    """

    name: str
    takes: str
    parse: Callable[[str], Any]


def parse_options(
    given: Mapping[str, str], table: Sequence[Option], *, instead: Mapping[str, str], ignored: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the values of the options in ``given``, by their names in ``table``.

    Args:
        instead: What to say of options that another system has, by name; a name that ends in "." is a prefix.
        ignored: What Spark adds by itself.

    Raises:
        InvalidRequestError: There is no such option, or it does not take this value. ``field`` names it.
    """
    known = {option.name.lower(): option for option in table}
    passed_over = {name.lower() for name in ignored}
    values: dict[str, Any] = {}
    for name, text in given.items():
        option = known.get(name.lower())
        if option is not None:
            values[option.name] = _value(option, text)
        elif name.lower() not in passed_over:
            raise _unknown(name, known, instead)
    return values


def exclude(values: Mapping[str, Any], *names: str, must_have_one: str | None = None) -> None:
    """Refuse more than one of these options, and none of them where ``must_have_one`` says what they are for.

    Raises:
        InvalidRequestError: See above. ``field`` names the first.
    """
    found = [name for name in names if name in values]
    if len(found) > 1:
        raise InvalidRequestError(
            f"{' and '.join(found)} exclude each other; give one of them: options={','.join(found)}", field=found[1]
        )
    if not found and must_have_one is not None:
        *others, last = names
        raise InvalidRequestError(
            f"{must_have_one}; give one of the options {', '.join(others)} or {last}: options=", field=names[0]
        )


def refuse(values: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    """Refuse these options because of ``why``.

    Raises:
        InvalidRequestError: One of them was given; ``field`` names it.
    """
    for name in names:
        if name in values:
            raise InvalidRequestError(f"{name} {why}: option={name}", field=name)


def endpoint_of(values: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the URL of the service: the option, or ``FENCELINE_URL`` as the session's process began with it.

    Raises:
        InvalidRequestError: Neither gives one, or what it gives is no URL of a service.
    """
    endpoint = values.get("endpoint") or environ.get("FENCELINE_URL")
    if not endpoint:
        raise InvalidRequestError(
            "the service is not known; give the option endpoint, or set FENCELINE_URL before the session starts: "
            "option=endpoint",
            field="endpoint",
        )
    if not _is_url(endpoint):
        raise InvalidRequestError(
            f"endpoint takes the URL of the service, such as http://127.0.0.1:8080: endpoint={endpoint}",
            field="endpoint",
        )
    return str(endpoint)


def region_of(values: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the region that requests are signed for: the option, or ``FENCELINE_AWS_REGION``."""
    return values.get("region") or environ.get("FENCELINE_AWS_REGION") or None


def whole(lowest: int, highest: int = 2**63 - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``lowest`` to ``highest``."""

    def parse(text: str) -> int:
        if _WHOLE.fullmatch(text.strip()) is None or not lowest <= int(text) <= highest:
            raise ValueError
        return int(text)

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of these words, in any case."""

    def parse(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError
        return text.strip().lower()

    return parse


def boolean(text: str) -> bool:
    """Return the truth of "true" or "false", in any case; raise ``ValueError`` for another text."""
    return one_of("true", "false")(text) == "true"


def duration_ms(text: str) -> int:
    """Return the milliseconds of a text such as "500ms", "30s", "15m", "2h" or "1d"; a bare number is in ms."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError
    return int(found[1]) * _UNIT_MS[(found[2] or "ms").lower()]


def words(text: str) -> str:
    """Return a text that is not blank, without the space around it; raise ``ValueError`` for a blank one."""
    if not text.strip():
        raise ValueError
    return text.strip()


def _value(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except InvalidRequestError:
        raise
    except ValueError as error:
        why = f" ({error})" if str(error) else ""
        raise InvalidRequestError(
            f"{option.name} takes {option.takes}{why}: {option.name}={text}", field=option.name
        ) from None


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # an invalid port, or an invalid address in brackets
        return False


def _unknown(name: str, known: Mapping[str, Option], instead: Mapping[str, str]) -> InvalidRequestError:
    for other, advice in instead.items():
        same = (other.lower(), other.lower().removeprefix(_KAFKA))  # also without the prefix of Kafka's client
        if name.lower() in same or (other.endswith(".") and name.lower().startswith(other.lower())):
            return InvalidRequestError(f"there is no such option here; {advice}: option={name}", field=name)
    close = get_close_matches(name.lower(), known, n=1)
    nearest = (
        f"did you mean {known[close[0]].name}?"
        if close
        else "the options are " + ", ".join(option.name for option in known.values())
    )
    return InvalidRequestError(f"there is no such option; {nearest}: option={name}", field=name)
