"""An AWS configuration with a profile of each kind of sign-in.

Rule: tests see nothing of this machine's own configuration.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import botocore.credentials
import botocore.tokens
import pytest

KINDS = {"static": "AKIDSTATIC", "process": "AKIDPROCESS", "sso": "AKIDSSO"}  # and the key that each gives
_PROCESS = {"Version": 1, "AccessKeyId": KINDS["process"], "SecretAccessKey": "secret"}
_CONFIG = """
[profile static]
aws_access_key_id = AKIDSTATIC
aws_secret_access_key = secret

[profile process]
credential_process = {python} {process}

[profile sso]
sso_session = portal
sso_account_id = 123456789012
sso_role_name = developer

[sso-session portal]
sso_region = us-east-1
sso_start_url = https://portal.test/start

[profile signed-out]
sso_session = other
sso_account_id = 123456789012
sso_role_name = developer

[sso-session other]
sso_region = us-east-1
sso_start_url = https://other.test/start

[profile broken]
credential_process = {python} {process} and fail
"""
# Faulty profiles, and the messages about them.
UNUSABLE = {
    "nobody": "there is no such AWS profile; set AWS_PROFILE to one",
    "signed-out": "there is no AWS sign-in, or it has expired; run 'aws sso login'",
    "broken": "the AWS configuration gives no credentials; check AWS_PROFILE",
}
# The portal's answer to a user that it knows.
ROLE_CREDENTIALS = json.dumps(
    {
        "roleCredentials": {
            "accessKeyId": KINDS["sso"],
            "secretAccessKey": "secret",
            "sessionToken": "token",
            "expiration": 4_102_444_800_000,
        }
    }
).encode()


def set_up(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``AWS_PROFILE`` choose among these profiles, and nothing else give credentials."""
    process = directory / "process.py"
    process.write_text(f"import sys\nsys.exit('no') if sys.argv[1:] else print({json.dumps(_PROCESS)!r})")
    config = directory / "config"
    config.write_text(_CONFIG.format(python=sys.executable, process=process))
    cache = directory / "sso"
    cache.mkdir()
    token = {"accessToken": "t", "expiresAt": "2099-01-01T00:00:00Z", "startUrl": "https://portal.test/start"}
    (cache / f"{hashlib.sha1(b'portal').hexdigest()}.json").write_text(json.dumps({**token, "region": "us-east-1"}))
    monkeypatch.setattr(botocore.tokens.SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", str(cache))
    monkeypatch.setattr(botocore.credentials.SSOProvider, "_SSO_TOKEN_CACHE_DIR", str(cache))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(directory / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
