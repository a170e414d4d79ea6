"""A record, as a producer gives it.

Not here: a record as the log stores it; see ``format.batch``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, init=False)
class Record:
    """One record, as a producer gives it.

    Attributes:
        headers: Pairs of name and value, in order. A name may repeat. A mapping may be given, too.
        timestamp: In ms; ``None`` means the time of the append.
    """

    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None

    def __init__(
        self, value: bytes | None, key: bytes | None = None, headers: Headers = (), timestamp: int | None = None
    ) -> None:
        self.value = value
        self.key = key
        # The exact type is checked first: the check for a mapping takes three times as long as all the rest.
        if type(headers) is tuple or type(headers) is list or not isinstance(headers, Mapping):
            self.headers = headers
        else:
            self.headers = list(headers.items())
        self.timestamp = timestamp
