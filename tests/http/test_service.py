"""The service itself, and that the contract, the routes, the table of errors and the served document are one."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import validate

from fenceline import errors
from fenceline.settings import Settings
from fenceline_http import openapi, schemas
from fenceline_http.dispatch import handler_of
from fenceline_http.request import match
from fenceline_http.routes import FUNCTIONS, ROUTES
from tests.support.http_events import DOCUMENT, call
from tests.support.law import CONTRACT


def routes_of(text: str) -> set[tuple[str, str]]:
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    found = re.findall(r"^(GET|POST|PUT|PATCH|DELETE)\s+(/[^\s?\[]*)", blocks, re.MULTILINE)
    return {(method, path) for method, path in found}


def test_health_has_region_and_version(service: Any) -> None:
    answer = call("GET", "/v1/health")
    assert answer.json.pop("now") > 1_700_000_000_000
    assert (answer.status, answer.json["peers"]) == (200, [])
    assert [answer.json[name] for name in ("status", "region", "version")] == ["ok", "local", "0.0.0"]


def test_the_served_document_is_valid_openapi_3_1(service: Any) -> None:
    served = call("GET", "/v1/openapi.json").json
    assert served["openapi"].startswith("3.1")
    validate(served)


def test_no_pattern_of_the_document_names_a_surrogate() -> None:
    """A validator whose expressions know only characters refuses such a pattern, and every answer under it."""
    patterns = re.findall(r'"pattern": "((?:[^"\\\\]|\\\\.)*)"', json.dumps(DOCUMENT))
    assert patterns
    assert [pattern for pattern in patterns if re.search(r"\\u[dD][89a-fA-F]", pattern)] == []


def test_the_document_has_exactly_the_paths_of_the_contract() -> None:
    promised = set().union(*map(routes_of, CONTRACT.values()))
    documented = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert promised == documented == {(route.method, route.path) for route in ROUTES}
    assert len(promised) == 81


def test_each_route_is_in_its_functions_module_with_a_handler_of_its_request() -> None:
    for name in FUNCTIONS:
        declared = import_module(f"fenceline_http.operations.{name}").ROUTES
        assert [route for route in ROUTES if route.function == name] == list(declared)
    for route in ROUTES:
        first, *rest = inspect.signature(handler_of(route)).parameters.values()
        assert first.annotation == "Request", route.path
        taken = [one.__name__ for one in (route.takes, route.batches) if one is not None and one.members]
        assert [one.annotation for one in rest] == ([" | ".join(taken)] if taken else []), route.path


def test_no_two_routes_take_the_same_request() -> None:
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    for route in ROUTES:
        parameters = re.findall(r"{(\w+)}", route.path)
        path = route.path.format(**{name: f"{name}-1" for name in parameters})
        assert [one for one in ROUTES if one.method == route.method and match(one.segments, path) is not None] == [
            route
        ]
        assert match(route.segments, path) == {name: f"{name}-1" for name in parameters}


def error_rows() -> dict[str, tuple[int, str, set[str]]]:
    rows = {}
    for codes, status, step, extra in re.findall(
        r"^\| (.+?) \| (\d+) \| (\w+) \|(.*)\|$", CONTRACT["errors"], re.MULTILINE
    ):
        names = {name.split(":")[0] for name in re.findall(r"`([a-z_]+)[`:]", extra)} - {"detail"}
        for code in re.findall(r"[A-Z][A-Z_]{4,}", re.sub(r"\(.*?\)", "", codes)):
            rows[code] = (int(status), step, names)
    return rows


def test_the_table_of_errors_is_that_of_the_contract() -> None:
    promised = error_rows()
    assert set(promised) == set(errors.TABLE)
    for code, (status, step, names) in promised.items():
        leaf = errors.TABLE[code]
        assert (leaf.status, leaf.next_step) == (status, step), code
        required, optional = schemas.EXTRA.get(code, ({}, {}))
        if code == "SESSION_EXPIRED":
            continue  # its cell is prose
        assert {*required, *optional} == names, code


def test_the_errors_that_name_a_partition_are_those_of_the_contract() -> None:
    paragraph = CONTRACT["errors"].partition("An error names its place.")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([A-Z_]+)`", paragraph)) == errors.PLACED
    for code in errors.TABLE:
        properties = DOCUMENT["components"]["schemas"][code]["properties"]
        assert ({"topic", "partition"} <= set(properties)) == (code in errors.PLACED), code


def test_every_error_has_its_schema_and_every_reference_leads_somewhere() -> None:
    components = DOCUMENT["components"]["schemas"]
    assert set(errors.TABLE) <= set(components)
    referred = set(re.findall(r"#/components/schemas/(\w+)", openapi.document_json("0.0.0")))
    assert referred <= set(components)


@pytest.mark.parametrize(
    "settings",
    [
        Settings("/data"),
        Settings("d", region="eu-west-1", item_age_ms=0),
        Settings(objects="s3://b.c/p/q", items="dynamodb://t", item_age_ms=7),
    ],
)
def test_settings_come_back_from_the_environment_as_they_went(settings: Settings) -> None:
    assert Settings.from_env({**settings.to_env(), "PATH": "/bin"}) == settings


def test_settings_need_a_directory_and_nothing_else() -> None:
    assert Settings.from_env({"FENCELINE_DATA_DIR": "d"}) == Settings("d")
    with pytest.raises(ValueError, match="name either a data directory, or objects and items"):
        Settings.from_env({})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"objects": "s3://b"}, "name items, too"),
        ({"items": "dynamodb://t"}, "name objects, too"),
        ({"data_dir": "d", "objects": "s3://b", "items": "dynamodb://t"}, "either a data directory"),
        ({"objects": "http://b", "items": "dynamodb://t"}, "objects must be s3://BUCKET"),
        ({"objects": "s3:///p", "items": "dynamodb://t"}, "objects must be s3://BUCKET"),
        ({"objects": "s3://b", "items": "dynamodb://"}, "items must be dynamodb://TABLE"),
    ],
)
def test_settings_that_name_no_pair_of_stores_are_refused(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Settings(**given)


def test_a_bucket_a_prefix_and_a_table_are_read_from_their_urls() -> None:
    settings = Settings(objects="s3://b/p/q", items="dynamodb://t")
    assert (settings.bucket_and_prefix, settings.table) == (("b", "p/q"), "t")
    assert Settings(objects="s3://b", items="dynamodb://t").bucket_and_prefix == ("b", "")


def test_the_document_allows_every_number_that_is_taken() -> None:
    expected = DOCUMENT["paths"]["/v1/topics/{topic}/partitions/{partition}/batches"]["post"]["parameters"]
    for name, value in (("expected_offset", 2**63 - 1), ("expected_offsets", [-1, 2**63 - 1])):
        [schema] = [one["schema"] for one in expected if one["name"] == name]
        jsonschema.validate(value, schema)
    jsonschema.validate({"transaction_timeout_ms": 10**9}, DOCUMENT["components"]["schemas"]["ProducerIdRequest"])


def parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of the document."""
    if isinstance(tree, dict):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts(value)


def test_every_number_that_may_need_64_bits_is_int64() -> None:
    """Generators of clients take 32 bits otherwise."""
    numbers = [part for part in parts(DOCUMENT) if part.get("type") == "integer"]
    wide = [part for part in numbers if part.get("maximum", 0) > 2**31 - 1]
    assert len(wide) > 100
    assert [part for part in wide if part.get("format") != "int64"] == []
    assert [part for part in numbers if part not in wide and "format" in part] == []


def test_each_operation_takes_one_type_and_has_one_type_for_each_success() -> None:
    """What a generator of clients makes one class of."""
    components = DOCUMENT["components"]["schemas"]
    for item in DOCUMENT["paths"].values():
        for operation in item.values():
            name = operation["operationId"]
            assert len(operation.get("requestBody", {}).get("content", {})) <= 1, name
            shown = set()
            for status, answer in operation["responses"].items():
                assert len(answer.get("content", {})) <= 1, name
                if status < "300":
                    shown |= {json.dumps(media["schema"]) for media in answer.get("content", {}).values()}
            assert len(shown) <= 1, name
            for one in shown:
                schema = json.loads(one)
                named = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
                assert not {"oneOf", "anyOf"} & set(named), name


def test_each_choice_has_a_discriminator_or_is_nullable_or_of_acks() -> None:
    """A generated type narrows by the code."""
    choices = [part for part in parts(DOCUMENT) if {"oneOf", "anyOf"} & set(part)]
    for part in choices:
        members = part.get("oneOf", part.get("anyOf"))
        if "discriminator" in part:
            assert part["discriminator"] == {
                "propertyName": "code",
                "mapping": {one["$ref"].rpartition("/")[2]: one["$ref"] for one in members},
            }
        else:
            assert {"type": "null"} in members or members[-1].get("const") == "all", part


def test_a_word_has_its_type() -> None:
    assert [part for part in parts(DOCUMENT) if ("const" in part or "enum" in part) and "type" not in part] == []
