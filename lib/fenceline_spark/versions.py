"""Names that some versions of PySpark lack, each with its replacement there.

Rule: a missing part is found by its name and not by a version's number, because vendors bring newer parts to older
versions. All other modules import these names from here.

- 4.0 has no filters that a query pushes down, and no writer of Arrow columns for streams.
- 4.0 and 4.1 have no admission control: a batch of a stream takes all there is.

Not here: what a reader or a writer does; see ``source`` and ``sink``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter

from fenceline.errors import InvalidRequestError

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_ADMISSION_CONTROL = True
except ModuleNotFoundError:
    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """A limit that PySpark never gives here."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """The only limit that there is."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A limit of rows, which is refused."""

    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """A least number of rows, which is refused."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing: PySpark asks once for the end of such a run."""


HAS_FILTERS = hasattr(datasource.DataSourceReader, "pushFilters")

# PySpark 4.0 gives Arrow columns to this class, in streams, too. There it calls ``commit`` with a batch's id.
StreamArrowWriter: type = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceArrowWriter)

__all__ = [
    "HAS_ADMISSION_CONTROL",
    "HAS_FILTERS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "check_version",
]


def check_version(options: Iterable[str], given: Collection[str], *, is_there: bool, since: str) -> None:
    """Refuse those of ``options`` that are given, where PySpark lacks what they need.

    Args:
        is_there: Whether it has that.
        since: The first version that has it.

    Raises:
        InvalidRequestError: One is given. ``field`` names it.
    """
    found = [name for name in options if name in given]
    if found and not is_there:
        raise InvalidRequestError(
            f"the option needs PySpark {since} or newer; leave it out, or install that version: "
            f"option={found[0]} pyspark={pyspark.__version__}",
            field=found[0],
        )
