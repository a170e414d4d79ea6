"""The page of the options on Spark is current, and has each of them with its meaning."""

from __future__ import annotations

import re
from pathlib import Path

from fenceline_spark.sink.options import OPTIONS as OF_THE_SINK
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.source.options import OPTIONS as OF_THE_SOURCE
from tools.docs import made, spark

PAGE = Path(__file__).parents[2] / spark.PAGE


def test_the_page_of_options_is_current() -> None:
    assert made.pages()[spark.PAGE] == PAGE.read_text(), f"{spark.PAGE}; run .venv/bin/python -m tools.docs make"


def test_each_option_on_spark_has_its_heading_and_its_meaning() -> None:
    names = [option.name for option in (*OF_THE_SOURCE, *OF_THE_SINK)]
    assert re.findall(r"^### `(\w+)` ", PAGE.read_text(), re.MULTILINE) == names
    assert set(spark.MEANINGS_OF_SOURCE) == {option.name for option in OF_THE_SOURCE}
    assert set(spark.MEANINGS_OF_SINK) == {option.name for option in OF_THE_SINK}


def test_the_defaults_of_the_sink_are_those_of_the_code() -> None:
    given = SinkOptions("http://h")
    assert spark.MEANINGS_OF_SINK["delivery"][1] == ("`exactly-once`" if given.is_exactly_once else "`at-least-once`")
    assert spark.MEANINGS_OF_SINK["compression"][1] == f"`{given.codec}`"
    assert spark.MEANINGS_OF_SINK["inlineBytes"][1] == f"`{given.inline_bytes}`"
    assert spark.MEANINGS_OF_SINK["commitTimeoutMs"][1] == f"`{given.commit_timeout_ms}`"
