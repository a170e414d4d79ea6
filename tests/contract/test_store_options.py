"""Commands on a bucket and a table: what can't be used is one line at start, and what can be used is used."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline.adapters.aws import client
from fenceline.backoff import Backoff
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_cli.main import app
from fenceline_http import wiring
from tests.contract.conftest import Surroundings
from tests.contract.stores import OBJECT_STORES
from tests.servers.faulty import answer, faulty_server, nobody_listens
from tests.servers.run import CREDENTIALS, address_of
from tests.support import profiles
from tests.support.results import error_line
from tests.support.service import REGION, TOPIC, append

STORES = ("--objects", "s3://fenceline-options/log", "--items", "dynamodb://fenceline-options")

Fenceline = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fenceline]:
    """Run a command; a server that would start prints only that."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "BACKOFF", Backoff(1, 1_000))
    monkeypatch.setattr(
        "fenceline_cli.dev_server.server.serve", lambda settings, *_: print("serves", settings.objects) or 0
    )
    return lambda *arguments: CliRunner().invoke(app, [*arguments])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "no stores are named; give --data DIR, or --objects"),
        (["--objects", "s3://b"], "name items, too"),
        (["--items", "dynamodb://t"], "name objects, too"),
        (["--data", "d", *STORES], "either --data, or --objects and --items"),
        (["--objects", "b", "--items", "dynamodb://t"], "objects must be s3://BUCKET"),
    ],
)
@pytest.mark.parametrize("command", [["dev"], ["verify"], ["rebuild"], ["check-store"], ["compact", "t"]])
def test_options_without_a_pair_of_stores_are_reported(
    run: Fenceline, command: list[str], options: list[str], expected: str
) -> None:
    assert expected in error_line(run(*command, *options))


def test_a_directory_is_not_created_by_an_option(run: Fenceline) -> None:
    assert "--create is for --objects and --items" in error_line(run("dev", "--data", "d", "--create"))


@pytest.mark.parametrize("command", ["dev", "verify", "check-store"])
def test_an_endpoint_that_does_not_answer_is_reported(
    run: Fenceline, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with nobody_listens() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert "the store can't be reached; check that it runs" in error_line(run(command, *STORES))


def test_missing_credentials_are_reported(run: Fenceline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with nobody_listens() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert error_line(run("dev", *STORES)).startswith("no AWS credentials; set AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize("profile", profiles.KINDS)
def test_a_profile_is_used_as_by_every_aws_tool(
    run: Fenceline, profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles.set_up(tmp_path, monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", profile)
    with faulty_server() as portal, faulty_server() as faulty:
        portal.answers = [answer(200, profiles.ROLE_CREDENTIALS)]
        faulty.answers = [answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")]
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", portal.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
        error_line(run("check-store", *STORES))

    assert faulty.requests
    for request in faulty.requests:
        assert f"Credential={profiles.KINDS[profile]}/" in request.headers["authorization"]


@pytest.mark.parametrize(("profile", "expected"), profiles.UNUSABLE.items())
def test_a_profile_without_credentials_is_reported(
    run: Fenceline, profile: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles.set_up(tmp_path, monkeypatch)
    monkeypatch.setenv("AWS_PROFILE", profile)
    with nobody_listens() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert error_line(run("check-store", *STORES)).startswith(expected)


def test_missing_boto3_is_reported_with_the_package_to_install(run: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert error_line(run("check-store", *STORES)) == 'S3 and DynamoDB need boto3: pip install "fenceline-log[aws]"'


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("AWS_ENDPOINT_URL", "nonsense", "AWS_ENDPOINT_URL is not an address; write it as http://HOST:PORT"),
        ("AWS_REGION", "no such place", "there is no such AWS region; set AWS_REGION"),
    ],
)
def test_a_setting_that_makes_no_client_is_reported(
    run: Fenceline, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(name, value)
    assert error_line(run("dev", *STORES)).startswith(expected)


@pytest.mark.parametrize("code", ["AccessDenied", "SignatureDoesNotMatch", "ExpiredToken"])
def test_a_bucket_without_permission_is_reported(run: Fenceline, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    refusal = answer(403, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())
    with faulty_server() as faulty:
        faulty.answers = [refusal] * 9
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
        line = error_line(run("dev", *STORES))
    advice = {
        "AccessDenied": "the AWS credentials don't permit this; grant it: bucket=",
        "SignatureDoesNotMatch": "the AWS credentials are not accepted; check them",
        "ExpiredToken": "the AWS credentials are not accepted; check them",
    }
    assert line.startswith(advice[code])


def test_a_bucket_in_another_region_is_reported(run: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    with faulty_server() as faulty:
        faulty.answers = [listing, answer(200, **{"x-amz-bucket-region": "eu-west-1"})]
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.url)
        assert "the bucket is in another region; set AWS_REGION=eu-west-1" in error_line(run("dev", *STORES))


@pytest.fixture
def aws_like(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lend an AWS without our bucket and table."""
    surroundings.need(OBJECT_STORES["s3-ministack"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", address_of("ministack"))


@pytest.fixture
def stores() -> list[str]:
    """Return options that name a bucket and a table of this test's own."""
    name = f"fenceline-{uuid.uuid4().hex}"
    return ["--objects", f"s3://{name}/log", "--items", f"dynamodb://{name}"]


def open_log(stores: list[str]) -> Log:
    settings = Settings(objects=stores[1], items=stores[3], region=REGION)
    return wiring.service_of(settings).log


@pytest.mark.slow
def test_a_missing_bucket_and_a_missing_table_are_reported(run: Fenceline, aws_like: None, stores: list[str]) -> None:
    assert "there is no such bucket; create it, or name another" in error_line(run("dev", *stores))
    assert run("dev", *stores, "--create").exit_code == 0
    other = [*stores[:3], "dynamodb://fenceline-no-such-table"]
    assert "there is no such table; create it, or name another" in error_line(run("dev", *other))


@pytest.mark.slow
def test_missing_stores_are_created_probed_and_served(run: Fenceline, aws_like: None, stores: list[str]) -> None:
    for _ in range(2):  # twice: the second time it is there
        started = run("dev", *stores, "--create")
        assert (started.exit_code, started.stdout) == (0, f"serves {stores[1]}\n"), started.output
    assert run("dev", *stores).exit_code == 0


@pytest.mark.slow
def test_a_store_that_lets_two_creates_win_is_not_served(
    run: Fenceline, aws_like: None, stores: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("dev", *stores, "--create").exit_code == 0
    # Act as a store that does not know the condition.
    monkeypatch.setattr("fenceline.adapters.aws.s3.S3ObjectStore.create", create_anyway)
    line = error_line(run("dev", *stores))
    assert line.startswith("the object store can't hold a log; use another: one of several creates at once wins: ")
    checked = run("check-store", *stores, "--json")
    assert checked.exit_code == 1
    assert {row["property"]: row["holds"] for row in json.loads(checked.stdout)} == {
        "what was created is read, whole, in ranges, and with its metadata": True,
        "a second create is refused, and changes nothing": False,
        "what was created is listed at once, in the order of the keys, from any key on": True,
        "what was deleted is gone at once, and its key free": True,
        "one of several creates at once wins": False,
    }


def create_anyway(self: Any, key: str, body: bytes, metadata: Any) -> None:
    self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=body, Metadata=metadata)


@pytest.mark.slow
def test_a_sound_store_is_shown_property_by_property(run: Fenceline, aws_like: None, stores: list[str]) -> None:
    run("dev", *stores, "--create")
    checked = run("check-store", *stores)
    assert checked.exit_code == 0, checked.output
    header, *rows = checked.stdout.splitlines()
    assert header == "property\tresult"
    assert [row.split("\t")[1] for row in rows] == ["ok"] * 5


def test_a_directory_is_checked_too(run: Fenceline, tmp_path: Path) -> None:
    assert run("check-store", "--data", str(tmp_path)).exit_code == 0
    assert "no such directory" in error_line(run("check-store", "--data", str(tmp_path / "none")))


@pytest.mark.slow
def test_a_log_on_a_bucket_and_a_table_is_verified_and_rebuilt(
    run: Fenceline, aws_like: None, stores: list[str]
) -> None:
    run("dev", *stores, "--create")
    log = open_log(stores)
    log.topics.create(TOPIC, partitions=3)
    for n in range(20):
        append(log, f"v{n}", producer=(7, 0, n))
    [verified] = [
        row for row in json.loads(run("verify", *stores, "--region", REGION, "--json").stdout) if row["partition"] == 0
    ]
    assert (verified["segments"], verified["broken_at"], verified["next_offset"]) == (20, None, 20)

    anew = [*stores[:3], f"{stores[3]}-anew"]
    line = error_line(run("dev", *anew, "--create", "--region", REGION))
    assert f"'fenceline rebuild {' '.join(anew)} --region {REGION}'" in line
    rebuilt = run("rebuild", *anew, "--region", REGION)
    assert rebuilt.stdout.startswith("rebuilt topics=1 partitions=3 segments=20 records=20\n"), rebuilt.output
    assert run("dev", *anew, "--region", REGION).exit_code == 0
    again = open_log(anew)
    assert append(again, "v19", producer=(7, 0, 19)).duplicate
    again.topics.delete(TOPIC)
