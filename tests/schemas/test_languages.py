"""Codes of languages are checked and reduced to what the segmenter knows."""

import pytest
from pydantic import ValidationError

from schemas.configs import IngestConfig
from schemas.languages import LANGUAGES, normalise_language


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("pt-BR", "pt"),
        ("zh_Hant", "zh"),
        ("sr-Latn-RS", "sr"),
        ("yue", "yue"),
        ("th", "th"),
    ],
)
def test_a_region_or_script_is_dropped(code: str, expected: str) -> None:
    assert normalise_language(code) == expected
    assert IngestConfig(inputs=("x",), language=code).language == expected


@pytest.mark.parametrize("code", ["", "xx", "english", "jp", "cn", "e", "-en", " en", "en fr", "12", "ｅn"])
def test_an_unknown_code_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown language; expected an ISO 639 code"):
        normalise_language(code)
    with pytest.raises(ValidationError, match="unknown language"):
        IngestConfig(inputs=("x",), language=code)


def test_codes_are_of_two_or_three_letters() -> None:
    assert all(code.isascii() and code.isalpha() and code.islower() for code in LANGUAGES)
    assert {len(code) for code in LANGUAGES} == {2, 3}


def test_languages_with_rules_of_their_own_are_known() -> None:
    rules = "am ar bg bn ca da de el en es fi fr gu hi hy it ja kk kn ml mr my nl pa pl pt ru sk ta te uk"
    assert set(rules.split()) <= LANGUAGES
