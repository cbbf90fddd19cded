from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.report.markup import Markup, element, escape, join


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = element("b", "<script>")
    assert inner == "<b>&lt;script&gt;</b>"
    assert element("p", "a & b ", inner) == "<p>a &amp; b <b>&lt;script&gt;</b></p>"
    assert join("<", Markup("<br>")) == "&lt;<br>"


def test_attributes() -> None:
    made = element(
        "p", class_="a", aria_label='"<&', height=3, width=1.5, hidden=True, lang=None, dir=False, name_="n"
    )
    assert made == '<p class="a" aria-label="&quot;&lt;&amp;" height="3" width="1.5" hidden name="n"></p>'


def test_a_void_element_is_not_closed() -> None:
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x7f", "\x85", "\ud800", "\ufffe", "\ufdd0"], ids=ascii)
def test_characters_that_html_forbids_are_replaced(character: str) -> None:
    assert escape(f"a{character}b") == "a�b"
    escape(f"a{character}b").encode()


@given(st.text(), st.text())
def test_whatever_the_text_it_comes_out_as_text(text: str, attribute: str) -> None:
    from html.parser import HTMLParser

    seen: list[Any] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, attrs))

        def handle_data(self, data: str) -> None:
            seen.append(data)

    reader = Reader()
    reader.feed(element("p", text, title=attribute))
    reader.close()
    plain: Callable[[str], str] = lambda value: _unescape(escape(value))  # noqa: E731
    assert seen[0] == ("p", [("title", plain(attribute))])
    assert "".join(seen[1:]) == plain(text)


def _unescape(text: str) -> str:
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#x27;", "'"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return text
