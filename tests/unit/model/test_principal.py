"""Principals as far as they outlive one start of a program."""

from __future__ import annotations

import pytest

from fenceline.errors import NotAuthorizedError
from fenceline.model.principal import is_anothers, judge, lasting

ROLE = "arn:aws:sts::111122223333:assumed-role/loader"


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (f"{ROLE}/start-1", ROLE),
        (f"{ROLE}/a/b\nc", ROLE),
        (f"{ROLE}/", ROLE),
        (ROLE, ROLE),
        ("arn:aws-cn:sts::111122223333:assumed-role/loader/x@y", "arn:aws-cn:sts::111122223333:assumed-role/loader"),
        ("arn:aws:sts::111122223333:federated-user/ann", "arn:aws:sts::111122223333:federated-user/ann"),
        ("arn:aws:iam::111122223333:user/assumed-role/ann", "arn:aws:iam::111122223333:user/assumed-role/ann"),
        ("arn:aws:iam::111122223333:root", "arn:aws:iam::111122223333:root"),
        ("", ""),
    ],
)
def test_of_an_assumed_role_account_and_role_last(principal: str, expected: str) -> None:
    assert lasting(principal) == expected
    assert lasting(expected) == expected


def test_an_object_belongs_to_its_principal_and_a_caller_without_one_may_use_it() -> None:
    assert is_anothers("alice", "bob")
    assert not any(is_anothers(*one) for one in (("alice", "alice"), ("alice", ""), ("", "bob"), ("", "")))
    judge("alice", "alice", "it")
    with pytest.raises(NotAuthorizedError, match="it belongs to another principal"):
        judge("alice", "bob", "it")
