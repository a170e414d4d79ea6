"""The functions' code: one directory with all that they need, made by pip, without docker.

Rule: the same source and the same constraints give the same bytes, whenever and wherever the bundle is made, so that
the hash of the asset changes only when the functions do, or the Python that compiles them. Every version is pinned
(constraints.txt), and pip's records and the times of compiled files are left out, because they depend on the making.
Only a Python of Lambda's version can compile the modules; without one, each cold start compiles.

All functions share one bundle, except for those that ask peers, whose bundle has more, which no other cold start should
have to fetch. A function's role decides what it may do, and its handler what it imports. Lambda loads only what is
imported.

Not here: memory, time and settings of the functions (``functions``).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from infra import elf
from infra.context import Target

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

# Packages that the handlers import beside our own. pip adds their dependencies.
REQUIREMENTS = ("aiokafka", "aws-lambda-powertools", "aws-xray-sdk", "botocore", "cramjam", "google-crc32c", "obstore")
FOR_PEERS = ("httpx",)  # by which peers are asked
PYTHON = "3.13"
# arm64, a fifth cheaper and no slower. pip takes a wheel only if its own tag is named; Lambda has glibc 2.34.
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_24_aarch64", "manylinux2014_aarch64")

_OURS = (("lib/fenceline", "fenceline"), ("lib/fenceline_http", "fenceline_http"), ("functions", "functions"))
# No function is a client, and none keeps its log in a directory.
_NOT_OURS = shutil.ignore_patterns("__pycache__", "*.md", "py.typed", "client", "sqlite")
# botocore carries descriptions of four hundred services, 27 MB. X-Ray's is for the tracer.
_SERVICES = {"dynamodb", "s3", "xray"}
_SERVICES_FOR_PEERS = {"sqs", "ssm", "sts"}
# Only the record codec of aiokafka is used; its client would be a third of the import time.
_AIOKAFKA = {"codec.py", "errors.py", "record", "util.py", "structs.py"}
_PACKAGING = {"__init__.py", "_structures.py", "version.py"}  # aiokafka compares versions
_POWERTOOLS_UTILITIES = {"__init__.py", "jmespath_utils"}  # imported by its logger
_PLACE = "/var/task"  # Lambda's directory of the bundle, for tracebacks
_KEPT_S = 3_600
NOT_COMPILED = (
    f"the functions are not compiled, so each cold start takes longer; install python{PYTHON} to compile them"
)
_PIP_RECORDS = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


class CannotBundle(Exception):
    """A failure to fetch the functions' dependencies, or to compile them. The message says why, in one line."""


def bundled(target: Target = "lambda", *, for_peers: bool = False) -> Path:
    """Return the directory that becomes the functions' asset. It is made unless it exists already.

    Args:
        target: Lambda's platform and Python, or those of this process.
        for_peers: Whether the functions ask other regions.

    Raises:
        CannotBundle: pip could not fetch the dependencies, or a module is no Python.
    """
    kind = "asking" if for_peers else "functions"
    place = BUILD / f"{kind}-{target}-{_key(target, for_peers)}"
    if not place.exists():
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
            made = Path(scratch, "bundle")
            shutil.copytree(_dependencies(target, for_peers), made)
            for source, name in _OURS:
                shutil.copytree(ROOT / source, made / name, ignore=_NOT_OURS)
            _write_metadata(made)
            _compile(made, target)
            _settle(made, place)
        _forget_old(place)
    return place


def bytes_of(bundle: Path) -> int:
    """Return how large a bundle is, unzipped: Lambda takes 250 MB."""
    return sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())


def _key(target: Target, for_peers: bool = False) -> str:
    """Return a name for the content, by every file that goes in and everything that decides what pip fetches."""
    _, compiler = _compiler(target) or ("", "none")
    digest = hashlib.sha256(f"{_dependencies_key(target, for_peers)} {compiler}".encode())
    for path in sorted(_sources()):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    yield ROOT / "pyproject.toml"
    for source, _ in _OURS:
        for directory, names, files in os.walk(ROOT / source):
            left_out = _NOT_OURS(directory, [*names, *files])
            names[:] = [name for name in names if name not in left_out]
            yield from (Path(directory, name) for name in files if name not in left_out)


def _dependencies(target: Target, for_peers: bool) -> Path:
    place = BUILD / f"dependencies-{target}-{_dependencies_key(target, for_peers)}"
    if not place.exists():
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as scratch:
            made = Path(scratch, "dependencies")
            _pip(made, target, REQUIREMENTS + FOR_PEERS if for_peers else REQUIREMENTS)
            _prune(made, _SERVICES | _SERVICES_FOR_PEERS if for_peers else _SERVICES)
            _settle(made, place)
    return place


def is_compiled(target: Target = "lambda") -> bool:
    """Return True if bundles for ``target`` are compiled here: that needs a Python of its version."""
    return _compiler(target) is not None


def _compiler(target: Target) -> tuple[str, str] | None:
    """Return the Python that compiles for ``target``, and its version; ``None`` if there is none that runs."""
    if target == "here":
        return sys.executable, sys.version
    for found in filter(None, (sys.executable, shutil.which(f"python{PYTHON}"))):
        # A command that is found may not run: version managers install one for each version that they know of.
        with suppress(OSError):
            command = [found, "-c", "import sys; print(sys.version)"]
            version = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False).stdout
            if version.startswith(f"{PYTHON}."):
                return found, version
    return None


def _environment() -> dict[str, str]:
    """Return the environment in which the same source is always compiled to the same bytes."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"PYTHONHASHSEED": "0"}


def _compile(directory: Path, target: Target) -> None:
    """Compile every module. Otherwise each cold start would, because Lambda keeps nothing of what a process compiles.

    A compiled file is never compared with its source, whose times are not the same twice.
    """
    compiler = _compiler(target)
    if compiler is None:
        return
    command = [compiler[0], "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(directory), "-p", _PLACE, str(directory)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBundle(f"the functions could not be compiled: {_last_line(done.stdout + done.stderr)}")


def _last_line(output: str) -> str:
    return "".join([line.strip() for line in output.splitlines() if line.strip()][-1:])[:300]


def _dependencies_key(target: Target, for_peers: bool) -> str:
    parts = [
        Path(__file__).read_text(),
        Path(elf.__file__).read_text(),
        (ROOT / "constraints.txt").read_text(),
        target,
        str(for_peers),
    ]
    if target == "here":
        parts += [sysconfig.get_platform(), sys.version]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _pip(directory: Path, target: Target, requirements: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(directory), "-c", str(ROOT / "constraints.txt"), "--only-binary=:all:"]
    if target == "lambda":
        command += ["--implementation", "cp", "--python-version", PYTHON]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBundle(f"pip could not fetch the functions' dependencies: {_last_line(done.stderr)}")


def _prune(directory: Path, services: set[str]) -> None:
    """Delete the files that no function reads."""
    shutil.rmtree(directory / "bin", ignore_errors=True)
    _keep(directory / "botocore" / "data", services, files_too=False)
    _keep(directory / "aiokafka", _AIOKAFKA, files_too=True)
    _keep(directory / "packaging", _PACKAGING, files_too=True)
    _keep(directory / "aws_lambda_powertools" / "utilities", _POWERTOOLS_UTILITIES, files_too=True)
    shutil.rmtree(directory / "aws_lambda_powertools" / "event_handler")
    (directory / "aiokafka" / "__init__.py").write_text('"""Only the record codec of aiokafka is here."""\n')
    for path in [*directory.rglob("*")]:
        is_unread = path.name in _PIP_RECORDS or path.name.startswith("examples-1.")
        if path.is_file() and (is_unread or path.suffix in {".pyi", ".pyx", ".pxd", ".c"}):
            path.unlink()
    for sboms in directory.glob("*.dist-info/sboms"):
        shutil.rmtree(sboms)
    elf.strip(directory)


def _keep(directory: Path, names: set[str], *, files_too: bool) -> None:
    for path in directory.iterdir():
        if path.name not in names and (path.is_dir() or files_too):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write_metadata(directory: Path) -> None:
    """Let ``importlib.metadata`` find our version, as it would if we were installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # A hyphen would end the name there: `fenceline-log` would be found as `fenceline`.
    place = directory / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")


def _forget_old(place: Path) -> None:
    """Delete the bundles of earlier sources, except those of the last hour, which a deployment may still use."""
    kind = place.name.rpartition("-")[0]
    for old in BUILD.glob(f"{kind}-*"):
        if old != place and time.time() - old.stat().st_ctime > _KEPT_S:
            shutil.rmtree(old, ignore_errors=True)


def _settle(made: Path, place: Path) -> None:
    """Give a directory its name by one rename, so that what has the name is whole, even if another process makes it
    too.
    """
    try:
        made.rename(place)
    except OSError:
        if not place.exists():
            raise
