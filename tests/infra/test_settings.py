"""What infrastructure writes is what wiring reads."""

from __future__ import annotations

import dataclasses

import pytest

from fenceline.settings import PeerSettings, Settings


def test_every_setting_goes_through_the_environment_and_back() -> None:
    settings = Settings(
        objects="s3://b",
        items="dynamodb://t",
        region="r",
        service="s",
        log_level="DEBUG",
        tracing=True,
        item_age_ms=7,
        aws_sdk="botocore",
    )
    polling = dataclasses.replace(settings, function="read", poll_slots=75)
    assert Settings.from_env(polling.to_env()) == polling
    peer = PeerSettings("there", "ssm:/fenceline/there/url", role="arn", queue="https://sqs/pull")
    peered = dataclasses.replace(settings, peers=(peer,), queue="https://sqs/own")
    assert Settings.from_env(peered.to_env()) == peered
    assert peer.parameter == "/fenceline/there/url"
    assert Settings.from_env(settings.to_env()) == settings
    assert Settings.from_env(Settings(data_dir="d").to_env()) == Settings(data_dir="d")


def test_a_name_that_is_not_there_yet_is_written_and_a_wrong_one_is_refused_when_read() -> None:
    written = Settings(objects="s3://${Token[Bucket.1]}", items="dynamodb://${Token[Table.2]}").to_env()
    assert written["FENCELINE_OBJECTS"] == "s3://${Token[Bucket.1]}"
    with pytest.raises(ValueError, match="objects must be s3://BUCKET"):
        Settings.from_env({**written, "FENCELINE_OBJECTS": "s3://no bucket", "FENCELINE_ITEMS": "dynamodb://t"})
