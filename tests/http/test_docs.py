"""What a person meets first: `GET /`, the page of the contract, and the words and examples of the document."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest

from fenceline import errors
from fenceline.format import keys
from fenceline.model.topic_config import NAMES
from fenceline.ports import Put
from fenceline_http import docs_page, openapi
from fenceline_http.routes import ROUTES
from tests.support.http_events import DOCUMENT, HTML_TYPE, Answer, call, validator

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
VOID = {"meta"}
LOADS = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "svg"}
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}


class Page(HTMLParser):
    """A page's parts; it raises where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, text/html", "text/html;q=0"])
def test_the_root_answers_with_links_that_lead_somewhere(service: Any, accept: str | None) -> None:
    answer = call("GET", "/", headers={"accept": accept} if accept else {})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (answer.json["name"], answer.json["version"]) == ("fenceline", "0.0.0")
    assert set(answer.json["links"]) >= {"openapi", "docs", "health"}
    for path in answer.json["links"].values():
        assert call("GET", path).status == 200


def test_a_browser_gets_the_page_at_the_root_and_every_client_at_docs(service: Any) -> None:
    for answer in (call("GET", "/", headers={"accept": BROWSER}), call("GET", "/docs")):
        assert (answer.status, answer.headers["content-type"]) == (200, HTML_TYPE)
        assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
        assert answer.body.decode() == docs_page.page("0.0.0")


def test_the_help_of_an_error_leads_to_its_part_of_a_page_of_the_server(service: Any) -> None:
    refused = call("GET", "/v1/topics/none").json
    assert refused["help"] == "/docs/errors#unknown_topic_or_partition"
    path, _, part = refused["help"].partition("#")
    answer = call("GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, HTML_TYPE)
    assert answer.body.decode() == docs_page.errors_page("0.0.0")
    page = Page(answer.body.decode())
    assert part in page.of("id")
    assert not page.tags & LOADS


def test_the_page_of_errors_has_each_of_them_with_what_it_means() -> None:
    page = Page(docs_page.errors_page("0.0.0"))
    assert page.of("id") == [code.lower() for code in errors.TABLE]
    for code, leaf in errors.TABLE.items():
        assert errors.help_path(code) == f"/docs/errors#{code.lower()}"
        assert " ".join((leaf.__doc__ or "").replace("``", "").split()) in page.text, code


def test_the_page_loads_nothing_and_every_link_within_it_leads_somewhere() -> None:
    page = Page(docs_page.page("0.0.0"))
    assert not page.tags & LOADS
    assert not {name for name, _ in page.attributes} & {"src", "style", "onclick", "onload"}
    assert "url(" not in docs_page.page("0.0.0")
    ids = page.of("id")
    assert len(set(ids)) == len(ids)
    beyond = {link for link in page.of("href") if link[1:] not in ids}
    # Relative ones, which lead to the same from `/` and from `/docs`, also below a gateway's prefix.
    of_errors = {f"docs/errors#{part}" for part in Page(docs_page.errors_page("0.0.0")).of("id")}
    assert beyond - of_errors == {"v1/openapi.json", "docs/errors"}


def test_the_page_has_every_operation_every_error_and_a_line_to_copy_for_each() -> None:
    text = Page(docs_page.page("0.0.0")).text
    for name, (method, path, operation) in OPERATIONS.items():
        assert f"{method} {path}\n" in text, name
        assert operation["description"].replace("`", "") in text, name
    assert text.count("curl -s") == len(OPERATIONS)
    page = Page(docs_page.page("0.0.0"))
    codes = {code for route in ROUTES for code in route.codes}
    assert {f"docs/errors#{code.lower()}" for code in codes} <= set(page.of("href"))
    assert set(OPERATIONS) <= set(page.of("id"))


def test_markup_in_the_document_is_text_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "</pre></code><script>alert(1)</script>\"'&"

    def poisoned(value: Any) -> Any:
        """Put markup behind every text that is not a name which the page looks up."""
        if isinstance(value, dict):
            return {
                key: one if key in ("$ref", "type", "in", "description") else poisoned(one)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [poisoned(one) for one in value]
        return value + evil if isinstance(value, str) else value

    document = openapi.document("0.0.0")
    document["paths"]["/v1/topics"]["get"]["description"] = f"`{evil}`"
    document["components"]["schemas"] = poisoned(document["components"]["schemas"])
    for item in document["paths"].values():
        for operation in item.values():
            operation["summary"] += evil
            operation["operationId"] += evil
            operation["parameters"] = poisoned(operation["parameters"])
            operation["requestBody"] = {
                "required": True,
                "content": poisoned(operation.get("requestBody", {"content": {}})["content"]),
            }
    monkeypatch.setattr(openapi, "document", lambda version: document)
    text = docs_page.page.__wrapped__("<script>")
    assert "script" not in Page(text).tags
    assert "<script" not in text


def test_every_operation_has_a_name_a_group_words_and_an_example_that_is_valid() -> None:
    assert len(OPERATIONS) == sum(len(item) for item in DOCUMENT["paths"].values())
    tags = {tag["name"] for tag in DOCUMENT["tags"]}
    assert {operation["tags"][0] for _, _, operation in OPERATIONS.values()} == tags
    for name, (_, _, operation) in OPERATIONS.items():
        assert re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", name), name
        assert operation["summary"]
        assert operation["description"].endswith(".")
        for parameter in operation["parameters"]:
            assert parameter["description"], (name, parameter["name"])
            if "example" in parameter:
                validator(json.dumps(parameter["schema"])).validate(parameter["example"])
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [answer.get("content", {}) for answer in operation["responses"].values()]
        for media in (each for content in contents for each in content.values()):
            if "example" in media:
                validator(json.dumps(media["schema"])).validate(media["example"])


def test_every_json_body_that_is_sent_and_every_answer_has_an_example() -> None:
    for name, (_, _, operation) in OPERATIONS.items():
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body and body["schema"]["$ref"] != "#/components/schemas/Nothing":
            assert "example" in body, name
        first = next(iter(operation["responses"].values()))
        if "application/json" in first.get("content", {}) and name != "getOpenapi":
            assert "example" in first["content"]["application/json"], name


@pytest.mark.parametrize(
    "names",
    [
        ("createTopic", "appendRecords", "readRecords", "getOffsets", "trimPartition"),
        (
            "createTopic",
            "appendRecords",
            "putSubscription",
            "readSubscription",
            "acknowledgeRecords",
            "getSubscription",
        ),
        ("createTopic", "appendBatches", "putSubscription", "seekSubscription"),
        ("createTopic", "appendRecords", "commitGroupOffsets", "getGroupOffsets"),
        ("createTopic", "claimProducer", "listProducers"),
        ("createSession", "createProducerId", "getHealth", "getLinks"),
    ],
)
def test_the_examples_are_requests_that_work(service: Any, names: tuple[str, ...]) -> None:
    for name in names:
        answer = call_as_shown(name)
        assert answer.status < 300, (name, answer.body)


def call_as_shown(name: str) -> Answer:
    """Send the example of an operation."""
    method, path, operation = OPERATIONS[name]
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    given = {
        one["name"]: one["example"] for one in operation["parameters"] if one["in"] == "query" and "example" in one
    }
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
    return call(method, path, urlencode(given), value=body)


def test_the_examples_of_transactions_follow_each_other_and_are_answered_as_they_say(service: Any) -> None:
    """The pair of the first example is that of all others. So the first id that is given is that one."""
    service.items.write([Put(keys.PRODUCER_ID_BLOCK, {"next": 1_001}, 1, None)])
    for name in ("createTopic", "appendRecords", "createProducerId", "addTransactionPartitions", "addTransactionGroup"):
        assert call_as_shown(name).status < 300, name
    for name in ("commitTransactionOffsets", "getTransaction", "listTransactions", "endTransaction"):
        answer = call_as_shown(name)
        said = next(iter(OPERATIONS[name][2]["responses"].values()))["content"]["application/json"]["example"]
        assert without_times(answer.json) == without_times(said), name
    assert call_as_shown("listTransactions").json == {"transactions": [], "has_more": False}
    for name in ("findGroupCoordinator", "findTransactionCoordinator"):
        assert call_as_shown(name).json["shard"] == 25
    for name in ("getGroupOffsets", "getTransaction", "listProducerStates"):
        assert call_as_shown(name).status == 200, name
    assert call_as_shown("abortTransaction").code == "INVALID_TXN_STATE"  # nothing hangs


def without_times(shown: Any) -> Any:
    if isinstance(shown, list):
        return [without_times(one) for one in shown]
    if isinstance(shown, dict):
        return {name: without_times(one) for name, one in shown.items() if name != "started_at"}
    return shown


def test_the_document_allows_signed_and_unsigned_requests() -> None:
    [(name, scheme)] = DOCUMENT["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["in"], scheme["name"]) == ("apiKey", "header", "Authorization")
    assert scheme["x-amazon-apigateway-authtype"] == "awsSigv4"
    assert DOCUMENT["security"] == [{}, {name: []}]


def test_acks_are_three_numbers_and_a_word() -> None:
    for schema in ("Produce", "ProduceMany"):
        acks = validator(json.dumps(DOCUMENT["components"]["schemas"][schema]["properties"]["acks"]))
        assert [one for one in (-2, -1, 0, 1, 2, "all", "1", "none", None, 1.5) if acks.is_valid(one)] == [
            -1,
            0,
            1,
            "all",
            None,
        ]


BOUNDS = ("max_records", "max_bytes", "wait_ms", "isolation")


@pytest.mark.parametrize(
    ("path", "last"),
    [
        (
            "/v1/topics/{topic}/partitions/{partition}/records",
            [
                *("encoding", "compacted", "group", "session_id", "identity", "compacted_since", "compaction_order"),
                *("topic_id", "member_id", "member_epoch", "value_bytes_max", "batches"),
            ],
        ),
        ("/v1/topics/{topic}/offsets", ["start_partition", "limit"]),
        (
            "/v1/topics/{topic}/partitions/{partition}/batches",
            ["group", "session_id", *BOUNDS, "topic_id", "member_id", "member_epoch"],
        ),
        (
            "/v1/topics/{topic}/subscriptions/{name}/records",
            ["encoding", "session_id", "require_stable", "identity", "topic_id", "member_id", "member_epoch"],
        ),
    ],
)
def test_parameters_keep_their_order_since_a_generated_client_may_take_them_by_position(
    path: str, last: list[str]
) -> None:
    names = [parameter.get("name") for parameter in DOCUMENT["paths"][path]["get"]["parameters"]]
    assert names[-len(last) :] == last


def test_each_setting_of_a_topic_says_what_it_is_and_what_counts_without_it() -> None:
    """The defaults are of answers alone: a generated client might send those of a request."""
    schemas = DOCUMENT["components"]["schemas"]
    shown, sent = schemas["Config"]["properties"], schemas["ConfigChange"]["properties"]
    assert list(shown) == list(sent) == list(NAMES)
    for name, spec in NAMES.items():
        assert (shown[name]["default"], shown[name]["description"]) == (spec.default, spec.what), name
        assert sent[name]["description"] == spec.what, name
        assert "default" not in str(sent[name].keys()), name
