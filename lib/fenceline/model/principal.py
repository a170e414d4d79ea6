"""The principal of a request, as far as it outlives one start of its program.

Rule: what outlives a program, as a transactional id or an application's version does, belongs to an account and role,
because the session name of an assumed role changes with each start of the program.

Rule: an empty principal is that of a request without authorization: to a local server, or by a process on the stores.
It may use everything. A resource that is stored without a principal may be used by every caller.

Not here: sessions of access, which end with their program, and belong to the whole principal (``access.session_item``).
"""

from __future__ import annotations

import re

from fenceline.errors import NotAuthorizedError

_ASSUMED_ROLE = re.compile(r"(arn:[^:]*:sts::[^:]*:assumed-role/[^/]+)/.*", re.DOTALL)


def lasting(principal: str) -> str:
    """Return the principal without the session name of an assumed role: ``…:assumed-role/ROLE`` with its account."""
    found = _ASSUMED_ROLE.fullmatch(principal)
    return principal if found is None else found[1]


def is_anothers(kept: str, principal: str) -> bool:
    """Return True if a resource stored with the principal ``kept`` is not ``principal``'s to use. Both are lasting."""
    return bool(kept) and bool(principal) and kept != principal


def judge(kept: str, principal: str, what: str) -> None:
    """Check that ``principal`` may use a resource stored with the principal ``kept``; see ``is_anothers``.

    Args:
        what: The resource, in words, for the error.

    Raises:
        NotAuthorizedError: It is another principal's. Nothing changes.
    """
    if is_anothers(kept, principal):
        # The other principal's name is not told.
        raise NotAuthorizedError(f"{what} belongs to another principal; use one of your own, or ask an operator")
