"""Our signatures equal botocore's."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import NoCredentialsError
from hypothesis import given
from hypothesis import strategies as st

from fenceline.adapters.aws import sigv4
from fenceline.adapters.aws.sigv4 import Signer, canonical_query

REGION = "eu-west-1"
CREDENTIALS = st.sampled_from([Credentials("AKID", "s3cr3t"), Credentials("ASIA", "other/+", "token+/=")])
KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(str.strip)
NAMES = st.text("abcdef-", min_size=1, max_size=8).map("x-amz-meta-{}".format)


def at(moment: str) -> Any:
    """Return what makes the signer sign at that moment."""
    patch = pytest.MonkeyPatch()
    patch.setattr(sigv4, "_now", lambda: moment)
    return patch


@given(CREDENTIALS, KEYS, st.dictionaries(NAMES, VALUES, max_size=5), st.binary(max_size=50))
def test_a_signed_request_is_the_one_botocore_signs(
    credentials: Credentials, key: str, headers: dict[str, str], body: bytes
) -> None:
    path = f"/{quote(key, safe='/~')}"
    theirs = AWSRequest("PUT", f"http://host:81{path}", headers=headers, data=body)
    S3SigV4Auth(credentials, "s3", REGION).add_auth(theirs)
    patch = at(theirs.headers["X-Amz-Date"])
    signer = Signer(credentials, REGION, "s3", "host:81")
    ours = signer.sign("PUT", path, {}, headers, hashlib.sha256(body).hexdigest())
    patch.undo()
    assert ours == {name.lower(): value for name, value in theirs.headers.items()}


@given(CREDENTIALS, st.dictionaries(st.sampled_from(["prefix", "start-after", "max-keys", "a b"]), KEYS))
def test_a_query_is_signed_as_botocore_signs_it(credentials: Credentials, query: dict[str, str]) -> None:
    theirs = AWSRequest("GET", f"https://host/?{canonical_query(query)}")
    S3SigV4Auth(credentials, "s3", REGION).add_auth(theirs)
    patch = at(theirs.headers["X-Amz-Date"])
    ours = Signer(credentials, REGION, "s3", "host").sign("GET", "/", query, {}, hashlib.sha256(b"").hexdigest())
    patch.undo()
    assert ours["authorization"] == theirs.headers["Authorization"]


@given(CREDENTIALS, KEYS, st.integers(1, 604_800))
def test_a_presigned_url_is_botocores(credentials: Credentials, key: str, lifetime_s: int) -> None:
    path = f"/{quote(key, safe='/~')}"
    theirs = AWSRequest("GET", f"https://host{path}")
    S3SigV4QueryAuth(credentials, "s3", REGION, lifetime_s).add_auth(theirs)
    expected = dict(parse_qsl(urlsplit(theirs.url).query))
    patch = at(expected["X-Amz-Date"])
    ours = Signer(credentials, REGION, "s3", "host").presign(path, lifetime_s)
    patch.undo()
    assert dict(parse_qsl(ours)) == expected


def test_another_day_and_other_credentials_have_another_key() -> None:
    frozen = SimpleNamespace(access_key="a", secret_key="first", token=None)
    signer = Signer(SimpleNamespace(get_frozen_credentials=lambda: frozen), REGION, "s3", "host")
    seen = set()
    for moment in ("20261120T100000Z", "20261121T100000Z", "20261120T100000Z"):
        for frozen.secret_key in ("first", "second"):
            patch = at(moment)
            seen.add(signer.presign("/k", 60))
            patch.undo()
    assert len(seen) == 4


def test_without_credentials_nothing_is_signed() -> None:
    with pytest.raises(NoCredentialsError):
        Signer(None, REGION, "s3", "host").presign("/k", 60)
