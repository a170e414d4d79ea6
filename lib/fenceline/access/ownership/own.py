"""The "own" API: take resources and keep them (protocol, "Ownership (Single Reader/Writer)").

Rule: one item transaction decides over all resources of a request, and severs the sessions that it must. For write
access, a marker in each partition's log follows, as for a claim (protocol, "Write access by own"). Then come the
confirmation, then the fences of the severed sessions, and only then the answer. If a process crashes in between, the
same request, sent again, completes the rest.

Not here: the decision on a request (``decision``), and the order of the failures of several markers
(``append.marker_round``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline.access import fence_markers, rules, session_item
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.ownership.decision import FoundResource, Planned, plan
from fenceline.access.ownership.release import give_up
from fenceline.access.ownership.snapshot import keys_named, read_claimer, read_found, read_held, read_owners, resolve
from fenceline.access.resources import Resource, check_wanted
from fenceline.access.rules import access_from_item
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.marker_round import MarkerAppend, MarkerLost, append_markers
from fenceline.errors import (
    CorruptLogError,
    FixError,
    OutcomeUnknownError,
    RetryError,
)
from fenceline.format import keys
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.access import OwnedResource
from fenceline.model.requests import OwnTarget
from fenceline.ports import Change, ItemTooLarge, NoAnswer, Unavailable, VersionMoved


def own(
    partitions: Partitions,
    session_id: str,
    wanted: Sequence[OwnTarget],
    until_ms: int,
    *,
    group: str | None = None,
    principal: str = "",
) -> list[OwnedResource]:
    """Own all these resources, or none; return them in the order of the request.

    Args:
        until_ms: When the request stops appending markers of write access, on the monotonic clock.

    Raises:
        InvalidRequestError: A name or a number is out of its bounds. Nothing was changed, as with the next ones.
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session, in this order.
        StaleGenerationError, ResourceOwnedError: The first resource that is refused.
        ThrottledError: The request is too much for one session, or for one request.
        StoreUnavailableError, ContendedError: Nothing was changed.
        OutcomeUnknownError: Some of it may be done; the same request completes it.
    """
    context = partitions.context
    check_wanted(group, wanted)
    claim = OwnAttempt(partitions, session_id, wanted, group, principal, until_ms)
    try:
        # A refusal after a write that was not answered is final: everything is given up before it is answered.
        return Attempts(context.runtime, "the ownerships", is_refusal_final=True).until_done(claim.attempt)
    except (FixError, CorruptLogError):
        # Another request came after the first write of this one, and blocks it now, so all is given up.
        if claim.has_written:
            claim.give_up()
        raise
    except RetryError as error:
        if not claim.has_written:
            raise
        raise OutcomeUnknownError(f"only a part of it is done; send the same request again: {error.detail}") from error


class OwnAttempt:
    """One request to own resources, over as many attempts as it takes."""

    def __init__(
        self,
        partitions: Partitions,
        session_id: str,
        wanted: Sequence[OwnTarget],
        group: str | None,
        principal: str,
        until_ms: int,
    ) -> None:
        self._context = partitions.context
        self._partitions = partitions
        self._session_id = session_id
        self._wanted = wanted
        self._group = group
        self._principal = principal
        self._until_ms = until_ms
        self.has_written = False
        self._severed: set[str] = set()  # by this request, or by an earlier one that crashed
        self._taken: dict[Resource, None] = {}  # by a write that was made, or may have been

    def attempt(self) -> list[OwnedResource]:
        """Carry out the whole request, from a fresh read on.

        Raises:
            VersionMoved: Another request wrote meanwhile. The next attempt reads its writes.
        """
        context, runtime = self._context, self._context.runtime
        names = [one.resource for one in self._wanted]
        keys_ = keys_named(names, self._group)
        claimer, named = read_claimer(self._partitions, self._session_id, self._principal, keys_)
        resources = [resolve(name, self._group, named) for name in names]
        found = read_found(self._partitions, resources, named)
        known = self._read_owners(found)
        wanted = list(zip(found, [one.generation for one in self._wanted], strict=True))
        held = read_held(context, claimer, sum(one.view is not None for one in found))
        made = plan(claimer, wanted, known, held, now_ms=runtime.now_ms())
        changes = made.transaction.changes(runtime)
        self._severed.update(*(one.item.severed for one in made.planned))
        self._write(changes, [one.resource for one in made.planned if not one.is_kept])
        pending = [one for one in made.planned if one.is_pending]
        if pending:
            self.has_written = True  # perhaps a marker of what an earlier request reserved
            self._append_markers(pending, claimer.client_name)
            self._confirm(pending)
        self.finish_fences()  # model: Access, "fences before the answer"
        return [OwnedResource(one.resource.name, one.item.generation, one.item.fencing_token) for one in made.planned]

    def _read_owners(self, found: Sequence[FoundResource]) -> Mapping[str, SessionItem]:
        try:
            return read_owners(self._partitions, found)
        except RetryError:
            # Raised by fences. If an earlier request of this session severed those sessions, the fences are this
            # request's.
            mine = self._session_id
            self.has_written |= any(one.item.session_id == mine and one.item.severed for one in found)
            raise

    def give_up(self) -> None:
        """Give up all that the request has taken, and finish its fences, so that a refusal can be answered.

        Raises:
            OutcomeUnknownError: Not all of this is done.
        """
        runtime = self._context.runtime
        try:
            # The release comes first, because after it no late write of this request can sever a session.
            give_up(self._context, self._session_id, self._taken)
            Attempts(runtime, "the severed sessions").until_done(self.finish_fences)
        except RetryError as error:
            raise OutcomeUnknownError(
                f"the request failed, and not all that it took is given up; send it again: {error.detail}"
            ) from error

    def finish_fences(self) -> None:
        """Finish the fences of the sessions that the request severed; see ``fence_markers.finish``."""
        if self._severed:
            fence_markers.read_fenced(self._partitions, self._severed)

    def _write(self, changes: Sequence[Change], taken: Sequence[Resource]) -> None:
        if not changes:
            return
        before = dict(self._taken)
        self._taken |= dict.fromkeys(taken)
        try:
            # A request that loses this write severs no session, and judges again. A request that wins it owns the
            # resources that guard no log.
            self._context.items.write(changes)
        except (VersionMoved, ItemTooLarge, Unavailable):
            self._taken = before
            raise
        except NoAnswer:
            self.has_written = True  # perhaps
            raise
        self.has_written = True

    def _append_markers(self, pending: Sequence[Planned], client_name: str | None) -> None:
        """Append the markers of write access, side by side, unless they are in the logs.

        Raises:
            VersionMoved: Another session's marker is in a log instead, or the topic is gone.
            FencelineError: As ``append_markers``.
        """
        markers = [
            MarkerAppend(
                one.resource.topic,
                one.resource.topic_id,
                one.resource.partition,
                GrantEntry(self._session_id, one.item.fencing_token, client_name=client_name),
            )
            for one in pending
        ]
        try:
            append_markers(self._partitions, markers, self._until_ms)
        except MarkerLost as lost:
            raise VersionMoved(pending[lost.index].access_key) from lost

    def _confirm(self, pending: Sequence[Planned]) -> None:
        """Write that the reserved epochs are granted, now that their markers are in the logs.

        Raises:
            VersionMoved: One belongs to another session by now, or this session has ended.
        """
        attempts = Attempts(self._context.runtime, "the partitions' access")
        lost = attempts.until_done(lambda: self._confirmed(pending))
        if lost is not None:
            raise VersionMoved(lost.access_key)

    def _confirmed(self, pending: Sequence[Planned]) -> Planned | None:
        """Confirm all, or return one that is lost."""
        context = self._context
        session_key = keys.session_item(self._session_id)
        items = context.items.get([session_key, *(one.access_key for one in pending)])
        session = session_from_item(items[session_key])
        transaction = ItemTransaction({})
        for one in pending:
            item = access_from_item(items.get(one.access_key))
            if item.granted == one.holder:
                continue  # by a write whose answer was lost, or by the same request beside this one
            made = rules.confirmed(item, one.holder)
            if made is None or session.is_final:
                return one
            transaction.put(one.access_key, made)
            session = session_item.with_hold(session, one.hold)
            transaction.put(session_key, session)
        changes = transaction.changes(context.runtime)
        if changes:
            context.items.write(changes)
        return None
