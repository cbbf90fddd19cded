"""The part about tokens that corpora and datasets share.

In: a `TokenTally` and a sentence that says what was read. Out: a section.
"""

from __future__ import annotations

from workflows.report.blocks import Bar, BarTable, Figure, FigureRow, Paragraph, Section
from workflows.report.token_tally import TokenTally

_FREQUENT_SHOWN = 40
_SCRIPTS_SHOWN = 12


def make_token_section(tokens: TokenTally, what_was_read: str) -> Section:
    """Unknown tokens, use of the vocabulary, the most frequent tokens, and the scripts."""
    total = max(1, tokens.num_tokens)
    figures = FigureRow(
        (
            Figure(
                "unknown tokens",
                percent(tokens.num_unknown, total),
                f"{tokens.num_unknown:,} of {tokens.num_tokens:,} are [UNK]",
            ),
            Figure(
                "vocabulary that occurs",
                percent(tokens.num_different, tokens.num_usable),
                f"{tokens.num_different:,} of {tokens.num_usable:,} entries",
            ),
            Figure(
                "continuations of words",
                percent(tokens.num_continuations, total),
                "tokens that are not the first of their word",
            ),
        )
    )
    frequent = tokens.most_frequent(_FREQUENT_SHOWN)
    highest = frequent[0].share if frequent else 1.0
    bars = tuple(
        Bar(token.token, (f"{token.count:,}", f"{token.share:.2%}"), token.share / highest, code=True)
        for token in frequent
    )
    table = BarTable(
        "Most frequent tokens", ("Token", "Count", "Of all"), bars, columns=2, note="[UNK] is not among them."
    )
    return Section("Tokens", "tokens", what_was_read, (figures, _script_table(tokens), table))


def percent(part: float, whole: float) -> str:
    """A share in percent with as many places as it needs: 12.3%, 0.021%, 0%."""
    if not whole or not part:
        return "0%"
    share = 100 * part / whole
    if share >= 1:
        return f"{share:.1f}%"
    return f"{share:.2g}%" if share >= 1e-4 else "<0.0001%"


def _script_table(tokens: TokenTally) -> BarTable | Paragraph:
    scripts = tokens.bytes_by_script()
    if not scripts:
        return Paragraph("No token of text was read.")
    total = sum(num_bytes for _, num_bytes in scripts)
    shown = scripts[:_SCRIPTS_SHOWN]
    rest = scripts[_SCRIPTS_SHOWN:]
    if rest:
        shown = [*shown, (f"{len(rest)} more", sum(num_bytes for _, num_bytes in rest))]
    bars = tuple(
        Bar(script, (f"{num_bytes:,}", percent(num_bytes, total)), num_bytes / total)
        for script, num_bytes in shown
    )
    note = (
        "A hint at the languages, no more: English and French are both Latin. The bytes are those of the "
        "tokens in UTF-8, as the tokenizer left them (lower-cased, say). White space is not counted, nor is "
        "text that became [UNK]: a script that the vocabulary lacks is missing here, too."
    )
    return BarTable("Scripts, by bytes of text", ("Script", "Bytes", "Share"), bars, note=note)
