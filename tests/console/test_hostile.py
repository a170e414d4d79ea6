"""Records that try to be more than text: nothing of them runs, hides, looks like another one, or freezes the page."""

import json

import pytest
from playwright.sync_api import expect

from fenceline import Record
from tests.console.conftest import LONG_TASKS, axe_finds, overflow

RUNS = "<script>document.title='pwned'</script>"
DEEP = b"[" * 150_000 + b"]" * 150_000
AVRO = b"\x00\x00\x00\x00\x11" + bytes.fromhex("3606666f6f")
SCHEMA = {
    "type": "record",
    "name": "test",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
}
VALUES = {
    "script": RUNS.encode(),
    "image": b"<img src=x onerror=\"document.title='pwned'\">",
    "link": b"javascript:alert(1)",
    "turned": "\u202eevil\u202c".encode(),
    "controls": b"line1\nline2\tTab\x00nul\x1b[31mred",
    "members": b'{"__proto__":{"x":1},"constructor":2,"a":1,"a":2,"id":9007199254740993,"price":1.10}',
    "not-json": b"{a:1}",
    "bytes": bytes(range(256)),
    "template": b"${7*7}{{7*7}}",
    "empty": b"",
    "null": None,
    "deep": DEEP,
    "avro": AVRO,
    "text": b"long words " * 350_000,
    "numbers": b"[" + b"1," * 1_500_000 + b"1]",
    "octets": b"\xff\x00" * 1_800_000,
}
OFFSETS = {key: offset for offset, key in enumerate(VALUES)}
FREEZE_MS = 2000  # a bound that a busy machine keeps; the budget, 200 ms, is printed beside what was measured


@pytest.fixture(scope="module")
def hostile(client):
    """One record for each way to be hostile, with a header whose name and value are, too."""
    client.create_topic("hostile", config={"max.message.bytes": 4_194_304})
    with client.producer("hostile", batch_bytes=4_100_000) as producer:
        for key, value in VALUES.items():
            headers = [("<u>h</u>", b"<s>v</s>"), ("\u202eh\x00", b"\xff"), ("", None)]
            producer.send(key=f"{key}\u2066<b>".encode(), value=value, headers=headers)
            producer.flush()


def opened(look, key, **given):
    page = look.page(**given)
    page.add_init_script(LONG_TASKS)
    page.goto(f"/console/topics/hostile?open=0-{OFFSETS[key]}")
    detail = page.get_by_role("region", name=f"Partition 0, offset {OFFSETS[key]}")
    expect(detail).to_contain_text("Batch")
    expect(detail.get_by_text("The whole value is on its way")).to_have_count(0)
    expect(page).to_have_title("hostile · fenceline")
    return page, detail


def test_nothing_of_a_record_runs_or_hides(look, hostile):
    page, detail = opened(look, "script")
    rows = page.locator(".records tbody tr")
    expect(rows).to_have_count(len(VALUES))
    expect(detail.locator("pre")).to_have_text(RUNS)
    expect(detail).to_contain_text("<u>h</u>")
    expect(detail).to_contain_text("<s>v</s>")
    expect(detail).to_contain_text("⟨202E⟩h␀")
    assert (
        page.locator("main b, main script, main img, main u, main s").evaluate_all(
            "all => all.filter(e => !e.closest('.chips')).length"
        )
        == 0
    )
    texts = page.locator(".records .value").all_inner_texts()
    assert any("⟨202E⟩evil⟨202C⟩" in text for text in texts)
    assert any("line1␊line2␉Tab␀nul␛[31mred" in text for text in texts)
    assert "\u202e" not in page.content()
    assert "\u2066" not in page.content()
    expect(page).to_have_title("hostile · fenceline")


def test_json_is_shown_as_it_is_stored(look, hostile):
    _, detail = opened(look, "members")
    shown = detail.locator("pre").inner_text()
    assert shown.replace("\n", "").replace(" ", "") == VALUES["members"].decode()
    detail.page.goto(f"/console/topics/hostile?open=0-{OFFSETS['not-json']}")
    expect(detail.page.locator(".detail pre")).to_have_text("{a:1}")
    expect(detail.page.get_by_role("button", name="JSON", exact=True)).to_have_count(0)


def test_null_and_empty_are_two_things(look, hostile):
    _, detail = opened(look, "null")
    expect(detail).to_contain_text("null: a tombstone")
    _, detail = opened(look, "empty")
    expect(detail.locator(".note")).to_have_text("empty")


def test_bytes_are_shown_as_hex_of_eight_a_line(look, hostile):
    _, detail = opened(look, "bytes")
    lines = detail.locator("pre").inner_text().split("\n")
    assert lines[9] == "000048  48 49 4a 4b  4c 4d 4e 4f  HIJKLMNO"
    assert len(lines) == 32


def test_what_looks_like_a_registrys_avro_is_decoded_by_a_schema_that_stays_here(look, hostile):
    page, detail = opened(look, "avro")
    expect(detail).to_contain_text("Looks like a schema registry's Avro, schema id 17")
    expect(detail.locator("pre")).to_contain_text("000000  00 00 00 00  11 36 06 66")
    detail.get_by_role("button", name="Avro").click()
    detail.get_by_label("Schema 17 as JSON").fill(json.dumps({"type": "string"}))
    detail.get_by_role("button", name="Decode").click()
    expect(detail.get_by_role("alert")).to_contain_text("It does not fit")
    detail.get_by_label("Schema 17 as JSON").fill(json.dumps(SCHEMA))
    detail.get_by_role("button", name="Decode").click()
    expect(detail.locator("pre")).to_contain_text('"b": "foo"')
    page.reload()
    expect(page.locator(".detail pre")).to_contain_text('"a": 27')


@pytest.mark.parametrize("key", ["text", "numbers", "octets", "deep"])
def test_a_value_of_megabytes_freezes_nothing(look, hostile, key):
    page, detail = opened(look, key)
    expect(detail.locator("pre")).to_be_visible()
    for view in ("Text", "Hex"):
        button = detail.get_by_role("button", name=view, exact=True)
        if button.count():
            button.click()
            detail.get_by_role("button", name="Next part").click()
            expect(detail.get_by_role("status").filter(has_text="Part 2 of")).to_be_visible()
    longest = page.evaluate("window.longest")
    print(f"longest task with the value {key}: {longest:.0f} ms of 200")
    assert longest < FREEZE_MS


def test_a_thousand_partitions_freeze_nothing(look, client):
    client.create_topic("wide", partitions=1000)
    with client.producer("wide") as producer:
        producer.send_many([Record(f"{n}".encode(), timestamp=1_700_000_000_000 + n) for n in range(3)], partition=999)
    page = look.page()
    page.add_init_script(LONG_TASKS)
    page.goto("/console/topics/wide")
    expect(page.locator(".records tbody tr")).to_have_count(3)
    expect(page.locator(".chip")).to_have_count(41)
    page.get_by_role("button", name="Next 40").click()
    expect(page.get_by_role("button", name="79 0")).to_be_visible()
    page.get_by_label("Partition", exact=True).fill("999")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="999 3")).to_have_attribute("aria-pressed", "true")
    longest = page.evaluate("window.longest")
    print(f"longest task with 1,000 partitions: {longest:.0f} ms of 200")
    assert longest < FREEZE_MS


def test_topics_with_hostile_names_are_topics(look, client):
    for name in ("__proto__", "n" * 249, "constructor"):
        client.create_topic(name)
        with client.producer(name) as producer:
            producer.send(key=b"__proto__", value=b"{}")
        page = look.at(f"topics/{name}?live=1&q=__proto__")
        expect(page.locator(".records tbody tr")).to_have_count(1)
        expect(page).to_have_title(f"{name} · fenceline")
        assert overflow(page) <= 0
    look.may_fail = True  # the browser itself says that there is no such topic
    page = look.at("topics/%3Cb%3E%E2%80%AEx")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics / <b>⟨202E⟩x")
    expect(page.get_by_role("alert").first).to_contain_text("UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(look, hostile, scheme):
    page, _ = opened(look, "avro", scheme=scheme)
    assert axe_finds(page) == ""
    page, detail = opened(look, "members", scheme=scheme, width=420)
    expect(detail.locator("pre")).to_be_visible()
    assert axe_finds(page) == ""
    assert overflow(page) <= 0
