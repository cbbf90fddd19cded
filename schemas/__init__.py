"""The contract between the pipelines that write data and the trainer that reads it.

Nothing here reads a file, starts a process or draws from a global random source; it stands on NumPy, Arrow
and pydantic alone, so that both halves can depend on it without depending on each other.
"""
