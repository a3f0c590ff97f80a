# Each target sets up what it needs; a machine with Python 3.10 or newer is enough for `make demo`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint celery-own bench chaos services clean

demo: $(VENV)/.core
	$(BIN)/python -m example_project.demo

test: lint services
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

celery-own: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m celery_own.run

bench: $(VENV)/.dev services
	$(BIN)/python -m benchmarks

# Sets up servers of its own, and kills them. Needs root, for a disk that can be full.
CHAOS_SECONDS ?= 600
CHAOS_TASKS ?= 20000
CHAOS_SEED ?= $(shell date +%s)
CHAOS_PAIRS ?= redis-postgresql rabbitmq-mariadb

chaos: $(VENV)/.dev
	for pair in $(CHAOS_PAIRS); do \
	    PYTHONPATH=tests $(BIN)/python -m chaos.run --pair $$pair \
	        --seconds $(CHAOS_SECONDS) --tasks $(CHAOS_TASKS) --seed $(CHAOS_SEED) || exit; \
	done

services:
	tests/services.sh

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	touch $@

clean:
	rm -rf $(VENV) .cache .demo build dist
