import pytest

from fenceline_cli.benchmark import parts


def test_no_name_is_every_part_and_names_keep_the_order_of_the_run() -> None:
    assert parts.chosen(parts.ON_S3, []) == list(parts.ON_S3)
    assert parts.chosen(parts.ON_S3, ["requests", "creates"]) == ["creates", "requests"]


def test_an_unknown_part_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="no part combining; the parts are appends, sizes, http, access, transactions"):
        parts.chosen(parts.LOCAL, ["combining"])
