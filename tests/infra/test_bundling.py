"""The functions' bundle: small, the same at every build, and quick to import."""

from __future__ import annotations

import ast
import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import fenceline
from benchmarks.functions import import_ms, imports_of
from functions import ASKING_PEERS, FUNCTIONS
from infra import bundling

# One process makes each bundle, once. Others would make the same at the same time, by pip.
pytestmark = pytest.mark.xdist_group("bundles")

MIB = 1024 * 1024
NEVER_COMPARED = 0b01.to_bytes(4, "little")  # with its source (PEP 552)


@pytest.fixture
def bundle() -> Path:
    return bundling.bundled("here")


def digest_of(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lambda", pytest.param("here", marks=pytest.mark.prove)])
def test_the_same_source_makes_the_same_bytes(
    target: bundling.Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = bundling.bundled(target)
    monkeypatch.setattr(bundling, "BUILD", tmp_path)
    again = bundling.bundled(target)
    assert again.parent == tmp_path
    assert again.name == made.name
    assert digest_of(again) == digest_of(made)


@pytest.mark.slow
def test_other_source_makes_another_bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("lib/fenceline", "lib/fenceline_http", "functions"):
        shutil.copytree(bundling.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(bundling.ROOT / name, tmp_path)
    before = bundling._key("lambda")
    monkeypatch.setattr(bundling, "ROOT", tmp_path)
    assert bundling._key("lambda") == before
    (tmp_path / "functions" / "produce.py").write_text("# another")
    assert bundling._key("lambda") != before


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lambda", "here"])
def test_the_bundle_is_at_most_32_mb(target: bundling.Target) -> None:
    assert bundling.bytes_of(bundling.bundled(target)) <= 32 * MIB


@pytest.mark.slow
def test_a_lambda_bundle_is_for_lambdas_machine_and_python() -> None:
    compiled = [path.name for path in bundling.bundled("lambda").rglob("*.so")]
    assert compiled
    assert all("x86" not in name for name in compiled)
    assert any("cpython-313-aarch64" in name for name in compiled)
    assert any(name.startswith("_crc32c.") for name in compiled)
    assert any(name.startswith("_obstore.") for name in compiled)


@pytest.mark.slow
def test_a_lambda_bundle_is_compiled_if_its_python_is_there() -> None:
    made = bundling.bundled("lambda")
    sources = {path.relative_to(made).with_suffix("") for path in made.rglob("*.py")}
    compiled = [path for path in made.rglob("*.pyc") if ".cpython-313.pyc" in path.name]
    modules = {path.parent.parent.relative_to(made) / path.name.split(".")[0] for path in compiled}
    assert modules == (sources if bundling.is_compiled("lambda") else set())
    assert {path.read_bytes()[4:8] for path in compiled} <= {NEVER_COMPARED}


@pytest.mark.slow
@pytest.mark.parametrize("for_peers", [False, True])
def test_nothing_of_spark_is_deployed(for_peers: bool) -> None:
    """Neither our packages for it, nor what it needs: a function would only be larger."""
    deployed = {path.name for path in bundling.bundled("here", for_peers=for_peers).iterdir()}
    assert {"fenceline", "fenceline_http", "functions"} <= deployed
    assert not deployed & {
        "fenceline_spark",
        "pyspark_fenceline",
        "matplotlib",
        "numpy",
        "pandas",
        "pyarrow",
        "pyspark",
    }


@pytest.mark.slow
def test_the_bundle_knows_its_version_by_the_distributions_name(bundle: Path) -> None:
    code = "import fenceline; from importlib import metadata\n"
    code += "print(fenceline.__version__, metadata.metadata('fenceline-log')['Name'])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(bundle)}, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [fenceline.__version__, "fenceline-log"]


@pytest.mark.slow
def test_the_handlers_import_from_the_bundle_alone(bundle: Path) -> None:
    code = "import sys, google_crc32c, fenceline.adapters.aws.s3, fenceline.adapters.aws.dynamodb, aws_xray_sdk.core\n"
    code += "assert google_crc32c.implementation == 'c'\n"
    code += "".join(map(imports_of, FUNCTIONS)) + "print(*sys.modules)"
    env = {"PYTHONPATH": str(bundle)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, check=True, capture_output=True, text=True)
    # Only the first batch of a transaction, and the first requests about several regions, about lag and to verify, wait
    # for their imports. Else all cold starts would take longer.
    missing = imported_by_methods(bundle / "fenceline" / "service") - set(done.stdout.split())
    assert missing == {
        "fenceline.recovery.verify_page",
        "fenceline.transactions.admission",
        "fenceline.regions.announce_subscriptions",
        "fenceline.service.lag",
        "fenceline.service.replication",
    }


def imported_by_methods(package: Path) -> set[str]:
    """Return our modules that a first request may import, and that its function did not import at the start."""
    parsed = [ast.parse(source.read_text()) for source in package.glob("*.py")]
    functions = [node for tree in parsed for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lines = [line for function in functions for line in ast.walk(function) if isinstance(line, ast.ImportFrom)]
    parts = {str(line.module) for line in lines}
    named = parts | {f"{line.module}.{one.name}" for line in lines for one in line.names}
    found = {one for one in named if bundling.ROOT.joinpath("lib", *one.split(".")).with_suffix(".py").exists()}
    assert len(found) > 10
    return {str(one) for one in found}


@pytest.mark.slow
def test_no_cold_start_compiles_what_is_deployed(bundle: Path) -> None:
    code = """
import os, sys, functions.telemetry.observed, fenceline_http.handlers.produce, fenceline.adapters.aws.s3
ours = [module for module in sys.modules.values() if (getattr(module, "__file__", "") or "").startswith(sys.argv[1])]

cached = [module.__cached__ for module in ours if getattr(module, "__cached__", None)]
print(len(cached), *[path for path in cached if not os.path.exists(path)])
"""
    env = {"PYTHONPATH": str(bundle), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-c", code, str(bundle)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    count, *missing = done.stdout.split()
    assert int(count) > 100
    assert missing == []
    assert {path.read_bytes()[4:8] for path in bundle.rglob("*.pyc")} == {NEVER_COMPARED}


@pytest.mark.parametrize(
    "expected",
    ["#!/bin/sh\nexit 127\n", "#!/bin/sh\necho '3.11.7 (main)'\n", "exit 1\n", "#!/nonexistent/python\n", "\x7fELF"],
)
def test_only_a_python_of_lambdas_version_that_runs_compiles_for_it(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "PYTHON", "3.99")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert not bundling.is_compiled("lambda")
    uncompiled = bundling._key("lambda")
    found = tmp_path / "python3.99"
    found.write_text(expected)
    found.chmod(0o755)
    assert not bundling.is_compiled("lambda")
    assert bundling._key("lambda") == uncompiled
    for version in ("3.99.1", "3.99.2"):
        found.write_text(f"#!/bin/sh\necho '{version} (main)'\n")
        assert bundling.is_compiled("lambda")
        assert bundling._key("lambda") != uncompiled
        uncompiled = bundling._key("lambda")


def test_source_that_cannot_be_compiled_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def broken(:\n")
    with pytest.raises(bundling.CannotBundle, match="could not be compiled: SyntaxError"):
        bundling._compile(tmp_path, "here")


@pytest.mark.slow
def test_the_functions_that_ask_peers_have_a_bundle_of_their_own_and_import_from_it_alone(bundle: Path) -> None:
    """Theirs has a client of HTTP and of queues. The others' has neither, so that no other cold start fetches them."""
    asking = bundling.bundled("here", for_peers=True)
    code = "".join(map(imports_of, ASKING_PEERS))
    code += """
import fenceline.adapters.aws.peer_signing, fenceline.adapters.aws.published_peer, fenceline.adapters.aws.sqs, httpx
from botocore.session import get_session
for service in ("sqs", "sts", "ssm"):
    get_session().create_client(service, region_name="eu-west-1")
"""
    subprocess.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(asking)}, check=True)
    assert not (bundle / "httpx").exists()
    assert not (bundle / "botocore" / "data" / "sqs").exists()
    assert bundling.bytes_of(bundle) < bundling.bytes_of(asking) <= 37 * MIB


UNWANTED = (
    "fenceline.adapters.aws.sqs",
    "fenceline.adapters.peer_http",
    "fenceline.regions.peer",
    "fenceline.regions.replicator",
    "fenceline.service.replication",
    "functions.replication",
    "fenceline.access.claims.claim",
    "fenceline.compaction.compact",
    "fenceline.service.subscriptions",
    "fenceline.access.sessions",
    "fenceline.access.ownership.own",
    "fenceline.read.reader",
    "fenceline.transactions.coordinator",
    "fenceline_http.handlers.read",
    "fenceline_http.openapi",
    "fenceline_http.operations.sessions",
    "fenceline_http.routes",
    "aws_lambda_powertools.event_handler",
    "pydantic",
    "pyarrow",
    "aws_cdk",
    "aws_xray_sdk",
    "boto3",
    "httpx",
    "sqlite3",
    "typer",
)


@pytest.mark.slow
def test_the_produce_path_imports_nothing_it_does_not_need(bundle: Path) -> None:
    code = f"import sys\n{imports_of('produce')}print(*sys.modules)"
    env = {"PYTHONPATH": str(bundle)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, check=True, capture_output=True, text=True)
    imported = set(done.stdout.split())
    assert "fenceline.adapters.aws.s3" in imported
    assert not imported & set(UNWANTED)


@pytest.mark.slow
def test_the_stores_are_opened_without_boto3_as_the_functions_are_set(bundle: Path) -> None:
    """The bundle does not have it. Python would find Lambda's own copy, which is slower and fits no version."""
    code = """
import sys
from fenceline.settings import Settings
from fenceline_http import wiring
given = Settings(objects="s3://bucket", items="dynamodb://t", aws_sdk="botocore").to_env()
settings = Settings.from_env(given)
wiring.stores_of(settings, now_ms=int)
print("boto3" in sys.modules)
"""
    path = f"{bundle}:{sysconfig.get_path('purelib')}"
    env = {"PYTHONPATH": path, "AWS_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
    assert not (bundle / "boto3").exists()


@pytest.mark.slow
def test_a_cold_produce_handler_imports_within_2_3_times_boto3(bundle: Path) -> None:
    """The handler, its observation and the stores' adapters: all that a cold start imports."""
    ratios = (import_ms(bundle, "produce") / import_ms(None, "boto3") for _ in range(10))
    # What else runs on the machine can only add time.
    assert any(ratio <= 2.3 for ratio in ratios)
