"""What -c may say: every other key or value ends the synthesis with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.context import BadContext, Deployment, SparkSettings, parse

PAGER = "arn:aws:sns:us-east-1:123456789012:pager"


def parsed(default_region: str = "us-east-1", **context: str) -> Deployment:
    return parse(context, default_region=default_region)


def test_the_defaults_are_one_region_and_signed_requests() -> None:
    found = parsed("eu-west-1")
    assert (found.regions, found.auth) == (("eu-west-1",), "iam")
    assert (found.keeps_data, found.deletion_protection) == (True, True)
    assert (found.cors_origins, found.target) == ((), "lambda")


def test_regions_are_those_that_were_named() -> None:
    assert parsed(regions="us-east-1, eu-west-1,").regions == ("us-east-1", "eu-west-1")


def test_the_toolkits_own_context_is_passed_over() -> None:
    context = {"aws:cdk:bundling-stacks": ["**"], "@aws-cdk/core:x": True, "cli-telemetry": False}
    assert parse(context, default_region="us-east-1") == parsed()


def test_spark_runs_where_it_was_asked_for(tmp_path: Path) -> None:
    assert parsed().spark is None
    packed = tmp_path / "environment.tgz"
    packed.touch()
    for given in (str(packed), "s3://packed/environment.tar.gz"):
        found = parsed(spark="true", spark_release="emr-spark-9.0.0", spark_environment=given)
        assert found.spark == SparkSettings("emr-spark-9.0.0", given)


def test_each_regions_alarms_have_a_topic_of_its_own() -> None:
    there = PAGER.replace("us-east-1", "eu-west-1")
    found = parsed(regions="us-east-1,eu-west-1", alarm_topics=f"{PAGER}, {there}")
    assert found.alarm_topics == {"us-east-1": PAGER, "eu-west-1": there}


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"regions": "us-east-9"}, "there is no region us-east-9"),
        ({"regions": "us-east-1,us-east-1"}, "the region us-east-1 is named twice"),
        ({"name": "9lives"}, "-c name is letters"),
        ({"name": "a" * 41}, "-c name is letters"),
        ({"auth": "none"}, "add -c unauthenticated=true"),
        ({"unauthenticated": "true"}, "goes with -c auth=none"),
        ({"auth": "basic"}, "-c auth is one of iam, none"),
        ({"cors_origins": "example.com"}, "-c cors_origins takes origins"),
        ({"throttle_rate": "-1"}, "-c throttle_rate is a number"),
        ({"poll_concurrency": "-1"}, "-c poll_concurrency is a number from 0 to"),
        ({"throttle_burst": "²"}, "-c throttle_burst is a number"),
        ({"deletion_protection": "maybe"}, "-c deletion_protection is true or false"),
        ({"restore_role": "admin"}, "-c restore_role is a role's ARN"),
        ({"log_days": "31"}, "-c log_days is one of 1, 7"),
        ({"log_level": "LOUD"}, "-c log_level is one of DEBUG"),
        ({"target": "there"}, "-c target is one of lambda, here"),
        ({"region": "us-east-1"}, "there is no -c region; there are: alarm_topics, auth"),
        ({"spark": "yes"}, "-c spark is true or false"),
        ({"spark": "true"}, "-c spark=true needs -c spark_release"),
        ({"spark": "true", "spark_release": "emr-7.9.0"}, "with Spark 4.0 or newer: 'emr-7.9.0'"),
        ({"spark": "true", "spark_release": "newest"}, "-c spark_release is the label of a release"),
        ({"spark": "true", "spark_release": "emr-spark-9.0.0"}, "-c spark=true needs -c spark_environment"),
        (
            {"spark": "true", "spark_release": "emr-spark-9.0.0", "spark_environment": "absent.tgz"},
            "a file that ends in .tgz, or an s3:// URL of a .tgz or .tar.gz; not 'absent.tgz'",
        ),
        ({"spark_release": "emr-spark-9.0.0"}, "-c spark_release goes with -c spark=true"),
        ({"restore_role": "arn:aws:s3:::bucket"}, "-c restore_role is a role's ARN"),
        ({"throttle_rate": "9" * 5_000}, "-c throttle_rate is a number"),
        ({"alarm_topics": "pager"}, "-c alarm_topics takes ARNs of SNS topics, not 'pager'"),
        ({"alarm_topics": f"{PAGER},{PAGER}"}, "-c alarm_topics names two topics in us-east-1"),
        ({"alarm_topics": PAGER, "regions": "eu-west-1"}, f"no stack goes to the region of {PAGER}"),
    ],
    ids=str,
)
def test_an_invalid_context_value_is_reported_in_one_line(context: dict[str, str], expected: str) -> None:
    with pytest.raises(BadContext) as refused:
        parsed(**context)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_region_is_reported() -> None:
    with pytest.raises(BadContext, match="no region: name one or several"):
        parsed("")


def test_unsigned_requests_are_allowed_only_by_two_options() -> None:
    assert parsed(auth="none", unauthenticated="true").auth == "none"
