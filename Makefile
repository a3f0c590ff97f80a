# Each target sets up what it needs; a machine with Python 3.10 or newer is enough for `make demo`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint celery-own bench services clean

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
