"""What a person runs: the command line, recipes, the quickstart, and the reports they end with.

Everything that computes lies in `pipelines` and `trainer`; a command here reads options, calls one of them,
and says in words and numbers what came of it. Nothing heavy is imported before a command needs it.
"""
