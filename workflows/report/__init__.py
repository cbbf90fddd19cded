"""One HTML page that shows what a corpus or a dataset holds, or how a training run goes.

In: a folder that `ingest`, `build` or `train` wrote. Out: a page that stands alone: no script, no font, no
request. Numbers that the manifest has are exact; the others come from a sample that is chosen by arithmetic,
read in bounded memory, and described on the page. Deterministic: the same folder gives the same bytes.

The way of a number: `corpus_sample` and `dataset_sample` read, `length_tally` and `token_tally` count,
`run_metrics` and `baselines` do so for a run; `corpus_page`, `dataset_page` and `run_page` arrange what was
counted into the blocks of `blocks`, and `rendering` turns blocks into HTML without knowing what they tell. A
page about something else needs only a module that arranges blocks; a new kind of block is a dataclass there
and a renderer registered here.
"""
