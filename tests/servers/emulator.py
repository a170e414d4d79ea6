"""The emulated AWS, with what our policies depend on and it lacks or gets wrong.

- It lacks the condition key of a conditional put.
- ``aws:PrincipalArn`` of a role's session is the role's ARN. The emulator has the session's.
- ``sqs:SendMessage`` is the leave for a batch, too. The emulator asks for an action that IAM does not have.

Rule: the Python of ministack's own environment runs it. It is no module of the tests.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from ministack.app import main
from ministack.core import iam_actions, iam_evaluator

KEY, HEADER = "s3:if-none-match", "if-none-match"

_known = iam_actions._s3_object_context


def _object_context(action: str, query: Any, path: str, headers: Any) -> dict[str, Any]:
    context: dict[str, Any] = _known(action, query, path, headers)
    if action == "s3:PutObject" and headers.get(HEADER):
        context[KEY] = headers[HEADER]
    return context


_action_of = iam_actions.extract_iam_action


def _action(*about: Any) -> Any:
    return "sqs:SendMessage" if (found := _action_of(*about)) == "sqs:SendMessageBatch" else found


_resolve = iam_evaluator._resolve_condition_key
_SESSION = re.compile(r"arn:([a-z-]+):sts::([0-9]{12}):assumed-role/(.+)/[^/]+")


def _condition_key(key: str, about: Any) -> Any:
    found = _resolve(key, about)
    if key.lower() == "aws:principalarn" and (session := _SESSION.fullmatch(str(found))):
        return f"arn:{session[1]}:iam::{session[2]}:role/{session[3]}"
    return found


if __name__ == "__main__":
    iam_actions.extract_iam_action = _action
    iam_evaluator._resolve_condition_key = _condition_key
    iam_actions._s3_object_context = _object_context
    sys.exit(main())
