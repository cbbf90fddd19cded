"""The trainer half: streams a dataset of shards, trains a BERT on it, evaluates it and asks it.

Importing this package loads neither torch nor anything else that is heavy; the modules that need torch say so
by living under `trainer.model`, `trainer.data.batches` and `trainer.data.loader`. Nothing here imports Beam.
"""
