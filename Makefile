# Each target sets itself up in .venv, from a clean clone with Python 3.11+ and make.
# Stamps under .venv/.stamps say what is installed, so a second run starts at once.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
SEED   ?= $(shell date +%s)
NAME   ?=
ARGS   ?=

PY     := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps

# Test workers share the cores: one BLAS thread each, or they fight over them.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST     := $(ONE_THREAD) MPLBACKEND=Agg $(PY) -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help venv demo reproduce test test-all test-min test-wheel fuzz lint format docs bench calibrate clean distclean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */	/' | expand -t 12

demo: $(STAMPS)/plot  ## embed, compare, condition, apply Bayes' rule: one screen and a picture
	$(PY) -m meanmap.demo $(ARGS)

reproduce: $(STAMPS)/experiments  ## experiments of the papers, NAME="rotation circle"; without NAME, a list of them
	@$(PY) -m meanmap_experiments $(NAME) $(ARGS)

test: $(STAMPS)/test  ## tests and the examples of the documentation, without the slow ones
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(STAMPS)/test  ## every test, the slow ones too
	$(PYTEST) $(ARGS)

test-min: .venv-min/.stamp  ## the tests with the oldest versions that pyproject.toml allows
	$(ONE_THREAD) MPLBACKEND=Agg .venv-min/bin/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

fuzz: $(STAMPS)/test  ## 20,000 hostile cases at every public entry point; SEED=n repeats a run
	@echo "seed $(SEED)"
	MEANMAP_FUZZ_CASES=20000 MEANMAP_FUZZ_SEED=$(SEED) $(PYTEST) tests/fuzz $(ARGS)

test-wheel:  ## build wheel and source archive, install the wheel in an empty environment, test it there
	rm -rf build/wheel && $(PYTHON) -m venv build/wheel/builder && $(PYTHON) -m venv build/wheel/empty
	build/wheel/builder/bin/python -m pip install --quiet build
	build/wheel/builder/bin/python -m build --outdir build/wheel/dist .
	build/wheel/empty/bin/python -m pip install --quiet "$$(ls build/wheel/dist/*.whl)[test]" ./experiments
	build/wheel/empty/bin/python -m pip check
	cp -r tests docs experiments README.md CHANGELOG.md CONTRIBUTING.md conftest.py pyproject.toml build/wheel/
	cd build/wheel && $(ONE_THREAD) MPLBACKEND=Agg empty/bin/python -m pytest -n $(JOBS) -m "not slow" tests experiments/tests --ignore=tests/test_links.py $(ARGS)


lint: $(STAMPS)/lint  ## ruff, mypy, the contract of one-way imports, and the rules of tests/house.py
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) tests/house.py

format: $(STAMPS)/lint  ## rewrite the sources in the house form
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(STAMPS)/docs  ## build the documentation in docs/_build/html, warnings are errors
	LC_ALL=C.UTF-8 MPLBACKEND=Agg $(PY) -m sphinx -W --keep-going -b html docs docs/_build/html $(ARGS)

bench: $(STAMPS)/bench  ## this package against its peers, side by side
	$(PY) benchmarks/run.py $(ARGS)

calibrate: $(STAMPS)/bench  ## how often the tests reject where there is nothing to find (slow)
	$(PY) benchmarks/calibrate.py $(ARGS)

venv: $(STAMPS)/venv  ## an empty environment

clean:  ## remove what builds and tests leave behind
	rm -rf build dist docs/_build docs/auto_gallery docs/auto_tutorials docs/sg_execution_times.rst
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src experiments tests docs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean  ## remove the environment as well
	rm -rf $(VENV) .venv-min

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "meanmap needs Python 3.11 or newer; '$(PYTHON)' is `$(PYTHON) --version 2>&1`." ; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)" ; exit 1 ; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

.venv-min/.stamp: pyproject.toml experiments/pyproject.toml tests/oldest_versions.py
	$(PYTHON) -m venv .venv-min
	$(PYTHON) tests/oldest_versions.py > .venv-min/oldest.txt
	.venv-min/bin/python -m pip install --quiet --constraint .venv-min/oldest.txt --editable ".[test]" --editable ./experiments
	@touch $@

# The experiments, which tests, documentation and benchmarks use as well.
$(STAMPS)/experiments: pyproject.toml experiments/pyproject.toml | $(STAMPS)/venv
	$(PY) -m pip install --quiet --editable . --editable ./experiments
	@touch $@

$(STAMPS)/test $(STAMPS)/docs $(STAMPS)/bench: $(STAMPS)/experiments

# One rule for every extra: .venv/.stamps/test installs this checkout with [test].
$(STAMPS)/%: pyproject.toml | $(STAMPS)/venv
	$(PY) -m pip install --quiet --editable ".[$*]"
	@touch $@
