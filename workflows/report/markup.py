"""HTML put together so that text can't become markup.

In: element names, attributes and children. Out: `Markup`. A child or an attribute that is a plain string is
escaped; only `Markup`, which nothing but this module and constants make, passes as it is.
"""

from __future__ import annotations

import html
import re

# What HTML forbids in text, and lone surrogates, which UTF-8 can't hold (paths may have them).
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_VOID = frozenset({"meta"})

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """A text as HTML: markup escaped, characters that HTML forbids replaced. `Markup` passes unchanged."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(_FORBIDDEN.sub(_REPLACEMENT, text), quote=True))


def join(*children: str) -> Markup:
    """Several children after one another."""
    return Markup("".join(escape(child) for child in children))


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """An element.

    Args:
        name: of the element; a constant.
        children: `Markup`, or text to escape.
        attributes: None and False are left out, True stands alone; `class_` is `class`, and an underscore
            within a name a hyphen.
    """
    opening = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{join(*children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
