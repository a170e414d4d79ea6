"""The page on AWS, typed by a stranger in a clone: it deploys a region by the real toolkit, uses it, and takes it down.

Rule: the emulated AWS is empty before, and the page leaves none of its stores behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from tests.docs.blocks import Page
from tests.e2e.region import QUIET, ROOT, Toolkit
from tests.servers import install
from tests.servers.aws import RESOLVER, Aws, aws

# By night, since it deploys a third region by the commands of ``test_deployed``. By day ``tests/docs/test_operate.py``
# looks whether all that the page types is there.
pytestmark = [pytest.mark.deploy, pytest.mark.prove]

PAGE = ROOT / "docs" / "learn" / "on-aws.md"
# Of a clone's files, what a deployment reads.
CLONE = ("app.py", "constraints.txt", "functions", "infra", "lib", "pyproject.toml")
# An emulator runs functions on this machine, and no terminal answers the toolkit's question.
SETTINGS = '{"app": "%s app.py", "context": {"target": "here"}, "requireApproval": "never"}'


class InAClone(Page):
    """The page in a folder like a clone, with an AWS that only its blocks talk to."""

    def __init__(self, page: Path, folder: Path, lent: Aws) -> None:
        super().__init__(page, folder)
        self._clone = folder
        self._lent = lent
        self._starts_a_server = True  # the page deploys one

    def __enter__(self) -> Page:
        for name in CLONE:
            (self._clone / name).symlink_to(ROOT / name)
        (self._clone / "cdk.json").write_text(SETTINGS % sys.executable)
        programs = self._clone / "programs"
        programs.mkdir()
        (programs / "npx").write_text(
            f'#!/bin/sh\n[ "$1" = aws-cdk@{install.AWS_CDK} ] || exit 127\nshift\nexec {install.aws_cdk()} "$@" --ci\n'
        )
        (programs / "npx").chmod(0o755)
        return super().__enter__()

    def _environment(self) -> dict[str, str]:
        known = super()._environment()
        del known["FENCELINE_URL"]
        path = f"{self._clone / 'programs'}{os.pathsep}{known['PATH']}"
        modules = os.pathsep.join([str(RESOLVER), str(ROOT / "lib"), str(ROOT)])
        return {**known, **self._lent.env, **QUIET, "PATH": path, "PYTHONPATH": modules}


def test_a_stranger_deploys_uses_and_takes_down_a_region_as_the_page_says(toolkit: Toolkit, tmp_path: Path) -> None:
    # The toolkit's fixture skips where no stack can be deployed.
    with aws() as lent, InAClone(PAGE, tmp_path, lent) as typed:
        assert sum(1 for _ in typed.run_all()) > 0
        assert not left_by(lent)


def left_by(lent: Aws) -> Mapping[str, list[str]]:
    """Return the buckets and tables of regions that are left."""
    session = botocore.session.get_session()

    def client(service: str) -> Any:
        keys = {
            "aws_access_key_id": lent.env["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": lent.env["AWS_SECRET_ACCESS_KEY"],
        }
        return session.create_client(
            service, region_name="us-east-1", endpoint_url=lent.url, verify=str(lent.certificate), **keys
        )

    buckets = [one["Name"] for one in client("s3").list_buckets()["Buckets"] if "fenceline" in one["Name"]]
    tables = client("dynamodb").list_tables()["TableNames"]
    return {name: some for name, some in (("buckets", buckets), ("tables", tables)) if some}
