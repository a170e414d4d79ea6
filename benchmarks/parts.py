"""The parts of ``fenceline bench``, by name and in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ON_DISK: Mapping[str, str] = {
    "appends": "append against a bare create",
    "sizes": "cost by number of segments",
    "http": "binary batches through HTTP",
    "access": "exclusive access",
    "transactions": "transactions",
}
ON_BUCKET: Mapping[str, str] = {
    "creates": "appends against bare creates",
    "reads": "reads of segments against bare gets",
    "threads": "group commit",
    "combining": "many processes on one partition",
    "paced": "processes whose clients wait between requests",
    "server": "clients of one server",
    "requests": "requests",
}


def chosen(parts: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Return the named parts in the order in which they are measured, or all.

    Raises:
        ValueError: A name is not one of them.
    """
    unknown = sorted(set(names) - set(parts))
    if unknown:
        raise ValueError(f"there is no part {', '.join(unknown)}; the parts are {', '.join(parts)}")
    return [name for name in parts if not names or name in names]
