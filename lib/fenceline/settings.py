"""What a deployment sets, by name, once: infrastructure writes it, wiring reads it.

The rule: no setting's name stands anywhere else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from fenceline import limits

_PREFIX = "FENCELINE_"
_OBJECTS = re.compile(r"s3://([a-zA-Z0-9][a-zA-Z0-9.\-_]*)(?:/(.*))?")
_ITEMS = re.compile(r"dynamodb://([a-zA-Z0-9.\-_]+)")
_NOT_YET = "${"  # infrastructure knows a name before there is one, by a placeholder; what is read is a name


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one region's functions, or of one local server.

    Args:
        data_dir: The directory of the embedded stores, or "" where the two that follow are given.
        region: The region's name, as topics and segments show it.
        item_age_ms: How old a look at topic and head may be (I4, I7); 0 looks on each append.
        objects: "" or s3://BUCKET[/PREFIX].
        items: "" or dynamodb://TABLE.
        service: What its metrics and log lines are told apart by; the stack's name.
        log_level: DEBUG, INFO, WARNING or ERROR.
        tracing: Whether requests are traced.
        function: Which function this is.
        poll_slots: How many polls the function holds at once, all of its processes together. 0 is for a process that
            is not one of many: it holds as many as it has threads for.
        aws_sdk: Whose session makes the stores' clients: "boto3", or "botocore", which starts sooner.

    Raises:
        ValueError: They name no pair of stores. The message says what to do.
    """

    data_dir: str = ""
    region: str = "local"
    item_age_ms: int = limits.ITEM_AGE_MS_MAX
    objects: str = ""
    items: str = ""
    service: str = "fenceline"
    log_level: str = "INFO"
    tracing: bool = False
    function: str = ""
    poll_slots: int = 0
    aws_sdk: Literal["boto3", "botocore"] = "boto3"

    def __post_init__(self) -> None:
        if bool(self.objects) != bool(self.items):
            missing = "items" if self.objects else "objects"
            raise ValueError(f"objects and items belong together; name {missing}, too")
        if bool(self.data_dir) == bool(self.objects):
            raise ValueError("name either a data directory, or objects and items")
        if self.aws_sdk not in ("boto3", "botocore"):
            raise ValueError(f"aws_sdk is boto3 or botocore, not {self.aws_sdk}")
        if self.objects and _NOT_YET not in self.objects + self.items:
            _ = self.bucket_and_prefix, self.table

    @property
    def is_embedded(self) -> bool:
        return not self.objects

    @property
    def bucket_and_prefix(self) -> tuple[str, str]:
        found = _OBJECTS.fullmatch(self.objects)
        if found is None:
            raise ValueError(f"objects are s3://BUCKET or s3://BUCKET/PREFIX, not {self.objects}")
        return found[1], found[2] or ""

    @property
    def table(self) -> str:
        found = _ITEMS.fullmatch(self.items)
        if found is None:
            raise ValueError(f"items are dynamodb://TABLE, not {self.items}")
        return found[1]

    def to_env(self) -> dict[str, str]:
        """Return every setting as a variable, "" where it has none."""
        return {_variable(name): str(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Settings:
        """Return what ``to_env`` wrote; what is not there has its default.

        Raises:
            ValueError: ``item_age_ms`` or ``poll_slots`` is no number, or the stores are not named.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        given = {name: environment[_variable(name)] for name in names if _variable(name) in environment}
        item_age_ms = int(given.pop("item_age_ms", limits.ITEM_AGE_MS_MAX))
        poll_slots = int(given.pop("poll_slots", 0))
        tracing = given.pop("tracing", str(False)) == str(True)
        aws_sdk = cast(Literal["boto3", "botocore"], given.pop("aws_sdk", "boto3"))
        return cls(**given, item_age_ms=item_age_ms, poll_slots=poll_slots, tracing=tracing, aws_sdk=aws_sdk)


def _variable(field: str) -> str:
    return _PREFIX + field.upper()
