"""The version that an application has committed: raised by the write that decides its transactions ("Once").

Rule: the version only grows. It is written only together with the decision over the transactions for which it counts,
or alone where there are none.

Not here: that write (``joint_end``), and its decision (``decide``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fenceline import limits
from fenceline.errors import AlreadyCommittedError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.log.sharded_list import Reads, items_after
from fenceline.model.principal import is_anothers, judge
from fenceline.model.transaction import OnceMark, OncePage
from fenceline.ports import Delete, Item, ItemValue, Put
from fenceline.runtime import Runtime

NONE = -1  # the version of an application that has committed none


@dataclass(frozen=True, slots=True)
class OnceItem:
    """The item of an application's committed version.

    Attributes:
        version: The item's version, not the application's; ``None`` if the item is still to be made.
        principal: The principal that has the application, by account and role; ``""`` while none has it.
    """

    mark: OnceMark
    version: int | None = None
    principal: str = ""

    def put(self, runtime: Runtime) -> Put:
        """Return the write of this item on the version that was read; a new item begins at a random version."""
        mark = self.mark
        value: dict[str, ItemValue] = {
            "version": mark.version,
            "note": mark.note,
            "committed_at": mark.committed_at,
            # A process of a version without principals drops it, and the next end gives it again.
            **({"principal": self.principal} if self.principal else {}),
        }
        return Put.replacing(keys.once_item(mark.app_id), value, self.version, runtime.fresh_version)


def once_from_item(item: Item) -> OnceItem:
    value: Mapping[str, Any] = item.value
    mark = OnceMark(item.key.sort, value["version"], value["note"], value["committed_at"])
    return OnceItem(mark, item.version, value.get("principal", ""))


def judge_application(stored: OnceItem | None, principal: str) -> None:
    """Check that the principal may use the application.

    Raises:
        NotAuthorizedError: The application is another principal's.
    """
    if stored is not None:
        judge(stored.principal, principal, f"the application {stored.mark.app_id}")


def raised(stored: OnceItem | None, wanted: OnceMark, now_ms: int) -> OnceItem:
    """Return the item raised to the wanted version.

    Raises:
        AlreadyCommittedError: This version, or a higher one, is stored.
    """
    # model: Once, "a version above the stored one"
    if stored is not None and wanted.version <= stored.mark.version:
        mark = stored.mark
        raise AlreadyCommittedError(
            "this version, or a higher one, is committed; nothing is committed again. Look whether the note is your "
            f"own: app_id={wanted.app_id} version={wanted.version} committed={mark.version}",
            version=mark.version,
            note=mark.note,
        )
    made = OnceMark(wanted.app_id, wanted.version, wanted.note, now_ms)
    return OnceItem(made) if stored is None else replace(stored, mark=made)


def read(context: Context, app_id: str, principal: str = "") -> OnceItem | None:
    """Return an application's committed version; ``None`` where it has committed none.

    Raises:
        NotAuthorizedError: The application is another principal's.
        Unavailable: The item store could not be asked.
    """
    key = keys.once_item(app_id)
    found = context.items.get([key]).get(key)
    stored = None if found is None else once_from_item(found)
    judge_application(stored, principal)
    return stored


def list_marks(
    context: Context, *, start_after: str, limit: int, principal: str = "", reads: Reads | None = None
) -> OncePage:
    """Return up to ``limit`` versions, by application in byte order, without those of other principals.

    Raises:
        Unavailable: The item store could not be asked.
    """
    reads = reads or Reads()
    start_after = start_after[: limits.TRANSACTIONAL_ID_BYTES_MAX + 1]  # because a store's keys have bounds
    found: list[OnceMark] = []
    for one in map(once_from_item, items_after(context, keys.ONCE_SHARDS, start_after, limit, reads)):
        if is_anothers(one.principal, principal):
            continue
        if len(found) == limit:
            return OncePage(found, has_more=True)
        found.append(one.mark)
    return OncePage(found, reads.go_on_after is not None, reads.go_on_after)


def forget(context: Context, app_id: str, principal: str = "") -> None:
    """Delete an application's committed version, so that any version may be committed again. Twice does no harm.

    Raises:
        NotAuthorizedError: The application is another principal's. Nothing was deleted.
        StoreUnavailableError, ContendedError: Nothing was deleted.
        OutcomeUnknownError: It may have been deleted.
    """
    attempts = Attempts(context.runtime, "the version that is committed")
    while True:
        with attempts:
            found = read(context, app_id, principal)
            if found is not None and found.version is not None:
                context.items.write([Delete(keys.once_item(app_id), found.version)])
            return
