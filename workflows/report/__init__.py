"""One HTML page that shows what a corpus or a dataset holds.

In: a folder that `ingest` or `build` wrote. Out: a page that stands alone: no script, no font, no request.
Numbers that the manifest has are exact; the others come from a sample that is chosen by arithmetic, read in
bounded memory, and described on the page. Deterministic: the same folder gives the same bytes.

The way of a number: `corpus_sample` and `dataset_sample` read, `length_tally` and `token_tally` count,
`corpus_page` and `dataset_page` arrange what was counted into the blocks of `blocks`, and `rendering` turns
blocks into HTML without knowing what they tell. A page about something else needs only a module that arranges
blocks; a new kind of block, such as a curve, is a dataclass there and a renderer registered here.
"""
