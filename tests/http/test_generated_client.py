"""Clients that generators of others make of the served document, in Python, Java, Go and TypeScript, work."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from fenceline_http import wiring
from tests.http.conftest import service_in_memory
from tests.servers import install
from tests.support.http_events import DOCUMENT
from tests.support.serving import serving

# A generator in a process of its own, for each kind of client; those in Python share one.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("generated clients")]

PACKAGE = "generated_fenceline"
T = TypeVar("T")
PROGRAMS = Path(__file__).with_name("generated_clients")
DONE = [
    "appended 0 1",
    "refused OFFSET_MISMATCH 1",
    "appended 1 3",
    "batch 1 1",
    "several 1 UNKNOWN_TOPIC_OR_PARTITION",
    "orders 0 a true",
    "orders 1 b true",
    "orders 2 c true",
    "copy 0 a true",
    "copy 1 d true",
    "first at a time 0",
]


def written(directory: Path) -> Path:
    document = directory / "openapi.json"
    document.write_text(json.dumps(DOCUMENT))
    return document


def generate(directory: Path, *options: str) -> str:
    """Generate the client into ``directory`` and return what the generator said."""
    document, settings = written(directory), directory / "config.json"
    settings.write_text(json.dumps({"post_hooks": []}))  # Ruff would tidy up what is generated.
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of the one client in Python, and what its generator said."""
    directory = tmp_path_factory.mktemp("python")
    return directory, generate(directory, "--fail-on-warning")


@pytest.fixture
def generated(made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(made[0]))
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def test_a_generator_drops_no_operation_and_names_each_as_a_person_would(made: tuple[Path, str]) -> None:
    directory, printed = made
    assert "will not be generated" not in printed
    assert "Unable to" not in printed
    api = directory / PACKAGE / "api"
    modules = {str(path.relative_to(api)) for path in api.glob("*/[a-z]*.py")}
    operations = [operation for item in DOCUMENT["paths"].values() for operation in item.values()]
    assert modules == {f"{one['tags'][0].lower()}/{snake(one['operationId'])}.py" for one in operations}


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


# Clients in other languages: each program appends by compare-and-set, moves a whole batch, and reads.


def run(*command: str | Path, cwd: Path) -> str:
    """Return what a program printed; all of it where it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8_000:]
    return done.stdout


def installed(get: Callable[[], T]) -> T:
    """Return what makes the clients of one language; skip the test where it can't be had."""
    try:
        return get()
    except install.CannotInstall as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(f"no client is generated: {error}")


@pytest.mark.prove
def test_a_client_that_is_generated_in_java_works(tmp_path: Path, url: str) -> None:
    generator, jars = installed(install.openapi_generator)
    only = "models,apis,supportingFiles,modelDocs=false,apiDocs=false,modelTests=false,apiTests=false"
    command = ["generate", "-i", written(tmp_path), "-g", "java", "--library", "native", "--global-property", only]
    run("java", "-jar", generator, *command, "-o", tmp_path / "client", cwd=tmp_path)
    shutil.copy(PROGRAMS / "Main.java", tmp_path)
    sources = [*(tmp_path / "client" / "src" / "main" / "java").rglob("*.java"), tmp_path / "Main.java"]
    classes = tmp_path / "classes"
    run("javac", "-nowarn", "-proc:none", "-d", classes, "-cp", jars / "*", *sources, cwd=tmp_path)
    assert run("java", "-cp", f"{classes}{os.pathsep}{jars / '*'}", "Main", url, cwd=tmp_path).splitlines() == DONE


@pytest.mark.prove
def test_a_client_that_is_generated_in_go_works(tmp_path: Path, url: str) -> None:
    generator, module = installed(install.oapi_codegen)
    program = tmp_path / "program"
    shutil.copytree(module, program)
    shutil.copy(PROGRAMS / "main.go", program)
    made = run(generator, "-package", "main", "-generate", "types,client", written(tmp_path), cwd=program)
    (program / "client.go").write_text(made)
    run("go", "build", "-o", "program", ".", cwd=program)
    assert run(program / "program", url, cwd=program).splitlines() == DONE


def test_the_types_that_are_generated_in_typescript_narrow_and_a_client_of_them_works(tmp_path: Path, url: str) -> None:
    modules = installed(install.openapi_typescript)
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(PROGRAMS / "main.ts", tmp_path)
    tools = modules / ".bin"
    run(tools / "openapi-typescript", written(tmp_path), "-o", "fenceline.d.ts", cwd=tmp_path)
    strict = ["--strict", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable"]
    run(tools / "tsc", *strict, "main.ts", cwd=tmp_path)
    assert run("node", "main.js", url, cwd=tmp_path).splitlines() == DONE
