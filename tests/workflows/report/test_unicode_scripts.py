import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.report.unicode_scripts import count_bytes_by_script, script_of


@pytest.mark.parametrize(
    ("character", "script"),
    [
        ("a", "Latin"),
        ("É", "Latin"),
        ("ﬁ", "Latin"),
        ("Ａ", "Latin"),
        ("ª", "Latin"),
        ("ж", "Cyrillic"),
        ("λ", "Greek"),
        ("א", "Hebrew"),
        ("ع", "Arabic"),
        ("ह", "Devanagari"),
        ("ि", "Devanagari"),
        ("ก", "Thai"),
        ("猫", "Han"),
        ("𠀀", "Han"),
        ("々", "Han"),
        ("ひ", "Hiragana"),
        ("カ", "Katakana"),
        ("ｶ", "Katakana"),
        ("한", "Hangul"),
        ("7", "Digits"),
        ("٣", "Digits"),
        ("½", "Digits"),
        ("!", "Punctuation and symbols"),
        ("。", "Punctuation and symbols"),
        ("😀", "Punctuation and symbols"),
        ("\N{COMBINING ACUTE ACCENT}", "Combining marks"),
        ("\N{VARIATION SELECTOR-16}", "Combining marks"),
        ("\N{ZERO WIDTH JOINER}", "Other characters"),
        ("\ue000", "Other characters"),
        ("\ud800", "Other characters"),
        ("�", "Parts of characters"),
    ],
    ids=ascii,
)
def test_script_of(character: str, script: str) -> None:
    assert script_of(character) == script


def test_bytes_are_those_of_utf_8() -> None:
    assert count_bytes_by_script("ab猫ж") == {"Latin": 2, "Han": 3, "Cyrillic": 2}


@given(st.text())
def test_every_byte_is_counted_once(text: str) -> None:
    assert count_bytes_by_script(text).total() == len(text.encode())
