"""Announcements: an UPDATE from which the other regions learn that a subscription exists, before a failover could need it.

DESIGN.md, "Cursors in several regions".

Rule: an UPDATE without positions says it, in partition 0. Only after its append does the subscription's item name the
regions that it is for (I23). So each region of the topic hears of it at least once, also one that is added later. The
region where it was made says it again each week: what is named no longer expires in the others.

Not here: what another region does with it (``apply_updates``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from fenceline import limits
from fenceline.append.entries.entry import Outdated
from fenceline.append.entries.region_markers import UpdateEntry
from fenceline.log.context import StaleTopicId
from fenceline.ports import NoAnswer, VersionMoved
from fenceline.regions.partition_job import PartitionJob
from fenceline.regions.updates import pages, update_of
from fenceline.subscriptions.cursor_store import change_of
from fenceline.subscriptions.items import SubscriptionItem

PARTITION = 0  # the one with these UPDATEs


def unannounced(job: PartitionJob, subscriptions: Sequence[SubscriptionItem]) -> Sequence[SubscriptionItem]:
    """Return those of the replicated subscriptions of which some region of the topic may not have heard.

    A region that was removed is forgotten by this, too. If it is added again, its topic may be another one.
    """
    if job.partition.partition != PARTITION:
        return ()
    others, now_ms = set(job.others), job.context.runtime.now_ms()

    def is_due(one: SubscriptionItem) -> bool:
        # Only where it was made, or switched on: else two regions would keep alive what was deleted everywhere.
        is_silent = one.is_active and not 0 <= now_ms - one.told_at < limits.TELL_AGAIN_MS
        return set(one.told) != others or is_silent

    return [one for one in subscriptions if is_due(one)]


def announce(job: PartitionJob, subscriptions: Sequence[SubscriptionItem]) -> None:
    """Append that these subscriptions exist, and note for which regions that is.

    Raises:
        FencelineError: As ``PartitionJob.append``. The next tick says it.
        StaleTopicId: The log is sealed, or the name leads elsewhere.
        Unavailable: The log says it, and the next tick says it once more.
    """
    left = list(subscriptions)
    for page in pages([update_of(one) for one in subscriptions]):
        if isinstance(job.append(UpdateEntry(page)), Outdated):
            raise StaleTopicId
        count = len(page.updates)
        job.context.runtime.gather([lambda one=one: _note(job, one) for one in left[:count]])  # type: ignore[misc]
        left = left[count:]


def _note(job: PartitionJob, subscription: SubscriptionItem) -> None:
    told = replace(subscription, told=tuple(job.others), told_at=job.context.runtime.now_ms())
    with suppress(VersionMoved, NoAnswer):  # changed meanwhile: the next tick says how it is then
        job.context.items.write([change_of(subscription, told)])
