"""Commands that speak to two regions sign each request for the region that it goes to."""

import contextvars
import re

import pytest
from typer.testing import CliRunner

from fenceline_cli import options
from fenceline_cli.main import app
from tests.support.runtime import AheadRuntime
from tests.support.served_regions import connecting, region_status, world


@pytest.fixture
def credentials(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "FENCELINE_AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def run(credentials, monkeypatch):
    """Return a function that runs a command, and returns for which region the requests to each host were signed."""

    def run(names, *arguments):
        with world(*names) as regions:
            return signed_by(regions, arguments)

    def signed_by(regions, arguments):
        first, second = regions.values()
        for region in (first, second):
            region.subscribe({})
        second.status = {"regions": [region_status(first.name)]}
        signed = {name: set() for name in regions}
        connect = connecting(regions, AheadRuntime())

        def connect_and_note(url, **given):
            client = connect(url, **given)
            name, send = url.rpartition("/")[2], client._transport._http.send

            def note(request):
                response = send(request)
                found = re.search(
                    "/([^/]+)/execute-api/aws4_request", response.request.headers.get("authorization", "")
                )
                signed[name].add(found and found[1])
                return response

            client._transport._http.send = note
            return client

        monkeypatch.setattr(options, "Client", connect_and_note, raising=False)
        # In a context of its own, since a command sets the region for which it signs.
        result = contextvars.copy_context().run(CliRunner().invoke, app, list(arguments))
        assert result.exit_code == 0, result.output
        return signed

    return run


def failover(a, b):
    return ("failover", "t", "s", "--from", f"{a}=http://{a}", "--to", f"{b}=http://{b}", "--yes")


def verify(a, b):
    return ("verify", "t", "--url", f"http://{a}", "--peer", f"{b}=http://{b}")


@pytest.mark.parametrize("command", [failover, verify])
def test_each_request_is_signed_for_the_region_that_it_goes_to(run, command):
    names = ("us-east-1", "ap-southeast-2")
    expected = {name: {name} for name in names}
    assert run(names, "--region", "us-east-1", *command(*names)) == expected
    assert run(names, *command(*names)) == {name: {None} for name in names}


@pytest.mark.parametrize("command", [failover, verify])
def test_a_region_with_a_name_unknown_to_aws_is_signed_for_the_given_one(run, command):
    names = ("a", "b")
    assert run(names, "--region", "us-east-1", *command(*names)) == {name: {"us-east-1"} for name in names}
