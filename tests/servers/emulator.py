"""The emulated AWS, with the one condition key that it lacks and that our bucket policy depends on.

Rule: the Python of ministack's own environment runs it. It is no module of the tests.
"""

from __future__ import annotations

import sys
from typing import Any

from ministack.app import main
from ministack.core import iam_actions

KEY, HEADER = "s3:if-none-match", "if-none-match"

_known = iam_actions._s3_object_context


def _object_context(action: str, query: Any, path: str, headers: Any) -> dict[str, Any]:
    context: dict[str, Any] = _known(action, query, path, headers)
    if action == "s3:PutObject" and headers.get(HEADER):
        context[KEY] = headers[HEADER]
    return context


if __name__ == "__main__":
    iam_actions._s3_object_context = _object_context
    sys.exit(main())
