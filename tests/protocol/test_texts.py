"""Texts that people write are compared in one form, which taking it again does not change."""

import pytest

from shoal_protocol.wire.encoding import canonical_text, near_text


@pytest.mark.parametrize("written", [" é", "e\u0301", "é\u00a0", "\ufeffé", "\u2003e\u0301\t\r\n"])
def test_spaces_around_a_text_and_its_form_in_unicode_mean_nothing(written: str) -> None:
    assert canonical_text(written) == "é"


def test_case_and_spaces_within_a_text_tell_texts_apart() -> None:
    assert len({canonical_text(each) for each in ("Age", "age", "a ge", "a  ge", "\uff41ge")}) == 5


@pytest.mark.parametrize("near", ["Age", "AGE", "\uff41ge", "a_ge", "a ge."])
def test_a_text_is_near_that_differs_by_case_width_or_punctuation(near: str) -> None:
    assert near_text("age", ["pressure", near]) == near


def test_other_texts_are_not_near_nor_are_those_without_a_letter_or_digit() -> None:
    assert near_text("age", ["page", "ages"]) is None
    assert near_text("-", [".", ""]) is None
