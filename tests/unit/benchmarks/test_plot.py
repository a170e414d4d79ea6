"""The picture of latencies; needs matplotlib, which the extras plot and spark have."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

if find_spec("matplotlib") is None:
    pytest.skip("matplotlib is not installed", allow_module_level=True)

LATENCIES = {"1 process, near": [1.0, 2.0, 3.0], "8 processes, near": [5.0], "1 process, 30 ms away": [31.0, 35.0]}


@pytest.fixture
def plot() -> ModuleType:
    """Import it here, since matplotlib takes long, and every worker collects all tests."""
    return import_module("benchmarks.plot")


def test_the_picture_is_written_as_a_png_beside_nothing_else(plot: ModuleType, tmp_path: Path) -> None:
    written = tmp_path / "latencies.json"
    written.write_text(json.dumps(LATENCIES))
    plot.draw(plot.read(written), tmp_path / "new" / "picture.png")
    picture = (tmp_path / "new" / "picture.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


def test_there_is_a_panel_for_each_place_with_a_curve_for_each_number_of_processes(plot: ModuleType) -> None:
    assert plot.places({**LATENCIES, "64 processes, near": []}) == {
        "near": {"1 process": [1.0, 2.0, 3.0], "8 processes": [5.0]},
        "30 ms away": {"1 process": [31.0, 35.0]},
    }


def test_a_curve_has_for_each_value_the_share_that_is_not_lower(plot: ModuleType) -> None:
    assert plot.curve([3.0, 1.0, 2.0, 9.0]) == ([1.0, 0.75, 0.5, 0.25], [1.0, 2.0, 3.0, 9.0])


def test_without_latencies_nothing_is_drawn(plot: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measure the part 'combining'"):
        plot.draw({}, tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())
