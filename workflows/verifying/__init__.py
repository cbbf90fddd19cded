"""`clozeline verify`: whether a corpus or a dataset is what its manifest says.

rulebook          what every example of a dataset is held to
chosen_tokens     the tokens that some examples have for prediction
whole_words       the words that these lie in
example_rules     which rules some examples break
shard_counts      what a shard holds, against the manifest's record
draw_tally        what the random draws of a dataset came out as
draw_statistics   whether chance explains that
folder_files      the files of a folder: there, as long as they should be, none too many
dataset_checks    all of that for a dataset
corpus_checks     the Parquet files of a corpus
processes         the same work on many files, spread over processes
"""
