import pytest

from benchmarks import parts


def test_no_name_is_every_part_and_names_keep_the_order_of_the_run() -> None:
    assert parts.chosen(parts.ON_BUCKET, []) == list(parts.ON_BUCKET)
    assert parts.chosen(parts.ON_BUCKET, ["requests", "creates"]) == ["creates", "requests"]


def test_an_unknown_part_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="no part combining; the parts are appends, sizes, http, access, transactions"):
        parts.chosen(parts.ON_DISK, ["combining"])
