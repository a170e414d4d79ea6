"""A deployed region, and two of them, by the real toolkit: bootstrap, deploy, look, destroy."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import httpx

from fenceline.client import Client
from tests.servers import install
from tests.servers.aws import Aws
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
ACCOUNT = "000000000000"
REGIONS = ("us-east-1", "eu-west-1")
# Built for the machine that emulates Lambda. The level is DEBUG, since the tests count by what is logged.
CONTEXT = {"regions": ",".join(REGIONS), "target": "here", "log_level": "DEBUG", "deletion_protection": "false"}
QUIET = {
    "CDK_DISABLE_CLI_TELEMETRY": "1",
    "NODE_NO_WARNINGS": "1",
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
}


class ToolkitFailed(Exception):
    """The toolkit ended with an error. The message has the last lines it printed."""


@dataclass(frozen=True)
class Toolkit:
    """The CDK's command line, which speaks to ``aws``; what it makes and reads lies in ``folder``."""

    aws: Aws
    folder: Path

    def bootstrap(self) -> None:
        self._run("bootstrap", *(f"aws://{ACCOUNT}/{region}" for region in REGIONS), "--app", self._assembly())

    def synth(self, **context: str) -> str:
        """Make the stacks' templates, and return what the toolkit printed."""
        given = [word for name, value in {**CONTEXT, **context}.items() for word in ("-c", f"{name}={value}")]
        return self._run("synth", "--quiet", "--app", f"{sys.executable} app.py", "--output", self._assembly(), *given)

    def deploy(self) -> tuple[str, Mapping[str, Mapping[str, str]]]:
        """Deploy what was made; return what the toolkit printed, and the stacks' outputs."""
        outputs = self.folder / "outputs.json"
        options = ["--require-approval", "never", "--concurrency", "2", "--outputs-file", str(outputs)]
        said = self._run("deploy", "--all", *options, "--app", self._assembly())
        return said, json.loads(outputs.read_text())

    def destroy(self) -> None:
        self._run("destroy", "--all", "--force", "--app", self._assembly())

    def template(self, stack: str) -> dict[str, Any]:
        template: dict[str, Any] = json.loads((self.folder / "cdk.out" / f"{stack}.template.json").read_text())
        return template

    def _assembly(self) -> str:
        return str(self.folder / "cdk.out")

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            [str(install.aws_cdk()), *command, "--ci"],
            cwd=ROOT,
            env={**os.environ, **self.aws.env, **QUIET},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=1_800,
        )
        if done.returncode:
            raise ToolkitFailed(f"cdk {command[0]}: {done.stdout[-3_000:]}")
        return done.stdout


class _Gateway(httpx.BaseTransport):
    """A transport for an API's own name, which no resolver knows: it goes to where the emulator is."""

    def __init__(self, certificate: Path) -> None:
        self._network = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=certificate))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        carried = httpx.Request(
            request.method,
            request.url.copy_with(host="127.0.0.1"),
            headers=request.headers,  # the Host header included
            stream=request.stream,
            extensions=request.extensions,
        )
        return self._network.handle_request(carried)

    def close(self) -> None:
        self._network.close()


@dataclass(frozen=True)
class Region:
    """One deployed region, as its stack's outputs describe it."""

    name: str
    url: str
    bucket: str
    table: str
    aws: Aws

    def client(self, *, is_signed: bool = True) -> Client:
        """Return a client with the credentials of the environment."""
        http = _Gateway(self.aws.certificate)
        return Client(self.url, region=self.name if is_signed else None, http=http, retry_ms=120_000)

    def http(self) -> httpx.Client:
        """Return a client that sends bare requests, unsigned."""
        return httpx.Client(base_url=self.url, transport=_Gateway(self.aws.certificate), timeout=PATIENCE_S)

    def fetch(self, url: str) -> bytes:
        """GET a URL without credentials, as a stranger might."""
        answer = httpx.get(url, verify=ssl.create_default_context(cafile=self.aws.certificate), timeout=PATIENCE_S)
        answer.raise_for_status()
        return answer.content

    def aws_client(self, service: str, **options: Any) -> Any:
        session = botocore.session.get_session()
        return session.create_client(
            service, region_name=self.name, endpoint_url=self.aws.url, verify=str(self.aws.certificate), **options
        )

    def lines(self, function: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of JSON that a function logged."""
        logs = self.aws_client("logs")
        prefix = f"Fenceline-{self.name}/{function.capitalize()}Log"
        groups = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
        for group in groups:
            if prefix in group:
                for event in _events(logs, group):
                    if event.startswith("{"):
                        yield json.loads(event)


def _events(logs: Any, group: str) -> Iterator[str]:
    where: dict[str, str] = {}
    while True:
        page = logs.filter_log_events(logGroupName=group, **where)
        yield from (event["message"].strip() for event in page["events"])
        if "nextToken" not in page:
            return
        where = {"nextToken": page["nextToken"]}
