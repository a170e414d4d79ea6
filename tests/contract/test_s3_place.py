"""Where the S3 adapter finds a bucket, against where botocore finds it, for settings of every kind."""

from __future__ import annotations

from pathlib import Path

import botocore.session
import pytest

from fenceline.adapters.aws import s3_place
from fenceline.adapters.aws.client import ClientOptions
from fenceline.ports import Unavailable
from tests.servers.run import CREDENTIALS

PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_CA_BUNDLE")
LOCAL, X, OTHER = "http://127.0.0.1:9000", "http://s3.example", "http://other.example:80/path/"

# Variables, the lines of the profile, the options, and whether botocore had to be asked.
Setting = tuple[dict[str, str], str, ClientOptions, bool]
SETTINGS: list[Setting] = [
    ({"AWS_REGION": "eu-west-1"}, "", {}, False),
    ({"AWS_DEFAULT_REGION": "us-east-1"}, "", {}, False),
    ({"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "eu-west-1"}, "", {}, False),
    ({"AWS_REGION": "us-east-1"}, "region = eu-west-1", {}, False),
    ({}, "region = ap-south-2", {}, False),
    ({"AWS_REGION": "us-east-1"}, "", {"region": "eu-north-1"}, False),
    ({"AWS_REGION": "cn-north-1"}, "", {}, True),
    ({"AWS_REGION": "us-gov-west-1"}, "", {}, True),
    ({"AWS_REGION": "eusc-de-east-1"}, "", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": LOCAL}, "", {}, False),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": LOCAL, "AWS_ENDPOINT_URL_S3": OTHER}, "", {}, False),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": LOCAL}, "", {"endpoint_url": OTHER}, False),
    ({"AWS_REGION": "any", "AWS_ENDPOINT_URL_S3": "https://s3.example"}, "", {}, False),
    ({"AWS_REGION": "us-east-1"}, f"endpoint_url = {LOCAL}", {}, True),
    ({"AWS_REGION": "us-east-1"}, f"services = here\n[services here]\ns3 =\n  endpoint_url = {LOCAL}", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": LOCAL}, "ignore_configured_endpoint_urls = true", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": X, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional"}, "", {}, True),
    ({"AWS_REGION": "us-east-1"}, "s3_us_east_1_regional_endpoint = regional", {}, True),
    ({"AWS_REGION": "us-east-1"}, "s3 =\n  addressing_style = path", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": X}, "s3 =\n  addressing_style = virtual", {}, True),
    ({"AWS_REGION": "us-east-1", "AWS_USE_FIPS_ENDPOINT": "true"}, "", {}, True),
    ({"AWS_REGION": "us-east-1"}, "use_dualstack_endpoint = true", {}, True),
]  # fmt: skip


def here(monkeypatch: pytest.MonkeyPatch, folder: Path, setting: Setting) -> ClientOptions:
    variables, profile, options, _ = setting
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    config = folder / "config"
    config.write_text(f"[default]\n{profile}\n")
    for name, value in {**CREDENTIALS, **variables, "AWS_CONFIG_FILE": str(config)}.items():
        if name not in PLACES or name in variables:
            monkeypatch.setenv(name, value)
    return options


@pytest.mark.parametrize("bucket", ["plain", "with.dots", "a-bucket-1"])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_bucket_is_where_botocore_finds_it_and_usual_settings_need_no_botocore(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bucket: str, setting: Setting
) -> None:
    options = here(monkeypatch, tmp_path, setting)
    core = botocore.session.get_session()
    asked = s3_place._asked(bucket, options)
    usual = s3_place._usual(core, bucket, options)
    assert (usual is None) == (setting[3] or "." in bucket)
    place = s3_place.place_of(bucket, **options)
    assert (place.url, place.region) == asked
    assert usual in (None, asked)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (({"AWS_REGION": "not a region"}, "", {}, False), "no such AWS region"),
        (({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "nonsense"}, "", {}, False), "AWS_ENDPOINT_URL is not"),
        (({"AWS_REGION": "us-east-1", "AWS_PROFILE": "absent"}, "", {}, False), "no such AWS profile"),
    ],
)
def test_unusable_settings_are_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: Setting, expected: str
) -> None:
    options = here(monkeypatch, tmp_path, setting)
    with pytest.raises(Unavailable, match=expected):
        s3_place.place_of("bucket", **options)


def test_the_certificates_are_those_that_are_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here(monkeypatch, tmp_path, ({"AWS_REGION": "us-east-1"}, "ca_bundle = /from/the/profile", {}, False))
    assert s3_place.place_of("bucket").certificates == "/from/the/profile"
    monkeypatch.setenv("AWS_CA_BUNDLE", "/from/the/variable")
    assert s3_place.place_of("bucket").certificates == "/from/the/variable"
