# Everything a fresh machine needs is Python 3.11 and make; each target makes the environment first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MINUTES ?= 5
BENCH ?=

.PHONY: quickstart test lint types imports unit test-slow bench golden clean help

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

quickstart: $(STAMP) ## from the text that every Python carries to a small BERT that fills masks
	$(BIN)/clozeline quickstart --minutes $(MINUTES)

test: lint types imports unit ## everything that must hold: lint, types, import contracts, tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu" tests

test-slow: $(STAMP) ## the checks that are too slow for every change
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not gpu" tests

bench: $(STAMP) ## ratios to other ways, side by side; BENCH="speed --corpus my.jsonl" chooses
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m tests.benchmarks $(BENCH)

golden: $(STAMP) ## write the golden files anew, after a change of the bytes that was meant
	$(BIN)/python docs/schemas/export.py
	$(BIN)/python -m tests.golden.regenerate

clean: ## remove the environment and all that was made by a test or the quickstart
	rm -rf $(VENV) quickstart .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info build dist

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)
