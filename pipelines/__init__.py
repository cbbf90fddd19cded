"""The Beam half of clozeline: the two jobs that turn raw text into shards, and the pure functions in them.

Importing it never brings torch along, so it runs on workers that have none.
"""
