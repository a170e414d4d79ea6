"""What a body is, by its content type."""

from __future__ import annotations

from fenceline_http import media_types


def test_the_usual_content_types_are_what_the_parser_says_of_them() -> None:
    assert {usual: media_types.of_body(usual) for usual in media_types.USUAL} == media_types.USUAL
