"""What the console's pages compute: their modules without a document, by node's own test runner."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = sorted(str(path) for path in (Path(__file__).parent / "pure").glob("*.test.mjs"))


def test_the_modules_without_a_document_keep_what_is_stored():
    node = shutil.which("node")
    if node is None:
        assert os.environ.get("FENCELINE_REQUIRE_BROWSER") != "1", "node is not here"
        pytest.skip("node is not here")
    ran = subprocess.run([node, "--test", *TESTS], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    assert f"# pass {ran.stdout.count('# Subtest')}" in ran.stdout
