"""A client that a generator makes of the served document, by a program of others, works."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fenceline_http import wiring
from tests.http.conftest import service_in_memory
from tests.support.http_events import BATCH_TYPE, DOCUMENT
from tests.support.serving import serving

pytestmark = pytest.mark.slow  # a generator in a process of its own, for each kind of client

PACKAGE = "generated_fenceline"
# Ruff would tidy up what is generated. This setting makes the binary form of a batch bytes.
CONFIG = {
    "post_hooks": [],
    "content_type_overrides": {BATCH_TYPE: "application/octet-stream"},
}


def generate(directory: Path, config: dict[str, Any], *options: str) -> str:
    """Generate the client into ``directory`` and return what the generator said."""
    document, settings = directory / "openapi.json", directory / "config.json"
    document.write_text(json.dumps(DOCUMENT))
    settings.write_text(json.dumps(config))
    command = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--meta", "none"]
    command += ["--path", str(document), "--config", str(settings), "--output-path", str(directory / PACKAGE), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        service = service_in_memory()
        patch.setattr(wiring, "service", lambda: service)
        with serving(service) as served:
            yield served


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    generate(tmp_path, CONFIG, "--fail-on-warning")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def test_a_generator_drops_no_operation_and_names_each_as_a_person_would(tmp_path: Path) -> None:
    told = generate(tmp_path, {"post_hooks": []})
    assert "will not be generated" not in told
    assert "Unable to" not in told
    made = {str(path.relative_to(tmp_path / PACKAGE / "api")) for path in (tmp_path / PACKAGE).glob("api/*/[a-z]*.py")}
    operations = [operation for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert made == {f"{one['tags'][0].lower()}/{snake(one['operationId'])}.py" for one in operations}


def test_a_generated_client_appends_and_reads(generated: ModuleType, url: str) -> None:
    models = importlib.import_module(f"{PACKAGE}.models")

    def operation(tag: str, name: str) -> Any:
        return importlib.import_module(f"{PACKAGE}.api.{tag}.{name}")

    with generated.Client(base_url=url) as client:
        made = operation("topics", "create_topic").sync(client=client, body=models.NewTopic("orders", partitions=2))
        assert (made.name, made.partitions) == ("orders", 2)
        append = operation("records", "append_records")
        for acks in (-1, 1, "all"):
            body = models.Produce([models.RecordIn("1 book", key="ann")], acks=acks)
            appended = append.sync("orders", 1, client=client, body=body)
        assert (appended.base_offset, appended.next_offset) == (2, 3)
        nothing = append.sync_detailed("orders", 1, client=client, body=models.Produce([models.RecordIn("")], acks=0))
        assert nothing.status_code == 202
        refused = append.sync(
            "orders", 1, client=client, body=models.Produce([models.RecordIn("late")], expected_offset=0)
        )
        assert isinstance(refused, models.OffsetMismatchError)
        assert refused.next_offset == 4
        page = operation("records", "read_records").sync("orders", 1, client=client, offset=0)
        assert [(one.offset, one.key, one.value) for one in page.records[:3]] == [
            (n, "ann", "1 book") for n in range(3)
        ]
        many = models.ProduceMany([models.ProduceEntry("orders", 0, [models.RecordIn(None, key="gone")])], acks="all")
        [result] = operation("records", "append_batches").sync(client=client, body=many).results
        assert result.base_offset == 0


def test_a_generated_client_commits_a_transaction(generated: ModuleType, url: str) -> None:
    models = importlib.import_module(f"{PACKAGE}.models")

    def operation(tag: str, name: str) -> Any:
        return importlib.import_module(f"{PACKAGE}.api.{tag}.{name}")

    with generated.Client(base_url=url) as client:
        operation("topics", "create_topic").sync(client=client, body=models.NewTopic("orders"))
        wanted = models.ProducerIdRequest(transactional_id="a b%")
        pair = operation("producers", "create_producer_id").sync(client=client, body=wanted)
        body = models.AddGroup("billing", pair.producer_id, pair.producer_epoch)
        added = operation("transactions", "add_transaction_group").sync_detailed("a b%", client=client, body=body)
        assert added.status_code == 204
        batch = models.Produce(
            [models.RecordIn("v")],
            producer=models.Producer(pair.producer_id, pair.producer_epoch, 0),
            transactional_id="a b%",
        )
        assert operation("records", "append_records").sync("orders", 0, client=client, body=batch).base_offset == 0
        end = models.EndTransaction(models.EndTransactionResult("commit"), pair.producer_id, pair.producer_epoch)
        following = operation("transactions", "end_transaction").sync("a b%", client=client, body=end)
        assert (following.producer_id, following.producer_epoch) == (pair.producer_id, pair.producer_epoch + 1)
        shown = operation("transactions", "get_transaction").sync("a b%", client=client)
        assert (shown.transactional_id, shown.state.value, shown.started_at) == ("a b%", "CompleteCommit", None)
        refused = operation("transactions", "get_transaction").sync("nobody", client=client)
        assert isinstance(refused, models.TransactionalIdNotFoundError)
