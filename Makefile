# Each target sets up what it needs; a machine with Python 3.10 or newer is enough for `make demo`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Versions of Celery, and where runs of the matrix note what they have seen.
MATRIX := 5.5 5.6 5.7
SEEN := .cache/matrix
# Other tests with real workers that rest on how Celery treats messages.
BESIDE := $(addprefix tests/integration/test_,foreign.py ingest.py poison.py)

.PHONY: demo test lint celery-own flower-own bench chaos kills services matrix clean

demo: $(VENV)/.core
	$(BIN)/python -m example_project.demo

# One order, so that CI runs the one that a developer has seen; any number is another one, and CI takes none
# by chance: what depends on order is found before (`make test SEED=7`), not by who comes next.
SEED ?= 1

# More processes than the two cores of the gate: tests with real workers wait more than they compute. Hundreds of
# workers import the package; where PYTHONDONTWRITEBYTECODE is set, each would compile it anew.
test: lint services
	$(BIN)/python -m compileall -q celery_dlq tests
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --randomly-seed $(SEED)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

celery-own: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m celery_own.run

flower-own: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m flower_own.run

bench: $(VENV)/.dev services
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
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

# Kills redrives; the same test with few of them is part of `make test`.
KILLS ?= 200
KILL_LETTERS ?= 20000

kills: $(VENV)/.dev services
	CELERY_DLQ_KILLS=$(KILLS) CELERY_DLQ_KILL_LETTERS=$(KILL_LETTERS) \
	    $(BIN)/python -m pytest -n 0 tests/integration/test_killed_redrive.py

services:
	tests/services.sh

# Every way to die with each version of Celery; writes docs/reference/ways_to_die.md.
matrix: $(MATRIX:%=$(VENV)-%/.dev) services
	rm -rf $(SEEN)
	@failed=0; for version in $(MATRIX); do \
	    mkdir -p $(SEEN)/$$version; \
	    CELERY_DLQ_MATRIX=whole CELERY_DLQ_MATRIX_RESULTS=$(CURDIR)/$(SEEN)/$$version \
	    $(VENV)-$$version/bin/python -m pytest -n 2 --dist loadfile \
	        tests/integration/test_matrix_on_redis.py tests/integration/test_matrix_on_rabbitmq.py $(BESIDE) \
	        || failed=1; \
	done; \
	PYTHONPATH=tests:tests/integration $(VENV)-$(lastword $(MATRIX))/bin/python -m matrix.page $(SEEN)/*; \
	exit $$failed

$(VENV)-%/.dev: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -e '.[test]' 'celery==$*.*' 'kombu==$*.*'
	touch $@

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[test,libraries,lint]'
	touch $@

clean:
	rm -rf $(VENV) $(MATRIX:%=$(VENV)-%) .cache .demo build dist
