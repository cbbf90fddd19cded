"""`clozeline verify`: whether a corpus or a dataset is what its manifest says.

rulebook          what every example of a dataset is held to
example_rules     which rules some examples break
whole_words       the same for words that are chosen whole
shard_counts      what a shard holds, against the manifest's record
draw_tally        what the random draws of a dataset came out as
draw_statistics   whether chance explains that
shard_files       the files of a folder: there, as long as they should be, none too many
dataset_checks    all of that for a dataset
corpus_checks     the Parquet files of a corpus
processes         the same work on many files, spread over processes
"""
