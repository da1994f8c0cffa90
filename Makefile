# The verbs of this project. `make demo` and `make test` do all the set-up by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help install demo test test-long test-soak test-unit bench types lint check clean

help:  ## the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(INSTALLED)  ## make .venv with everything in it

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[stack,demo,dev]'
	@touch $(INSTALLED)

demo: install  ## the whole of it in about a minute: orders, a killed worker, a checked ending
	$(BIN)/stream demo

# Two at a time, a Kafka and a PostgreSQL each: most tests wait for something.
test: install  ## the tests, on a real Kafka and a real PostgreSQL
	$(BIN)/pytest -n 2 --dist loadfile -m 'not long and not soak'

test-long: install  ## those that take long: outages, rates, processes killed again and again
	$(BIN)/pytest -n 2 --dist loadfile -m long

test-soak: install  ## the longest of them; before a release, and where their code changes
	$(BIN)/pytest -n 2 --dist loadfile -m soak

test-unit: install  ## the pure modules only
	$(BIN)/pytest tests/unit

bench: install  ## against raw loops on the same broker and database; prints ratios
	$(BIN)/python -m benchmarks

types: install
	$(BIN)/mypy

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check: types lint  ## types, lint, import rules

clean:  ## stop this project's stack and remove what was made here
	test ! -x $(BIN)/stream || $(BIN)/stream stack down --delete
	rm -rf $(VENV) .stream *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
