# Every target sets up what it needs: on a fresh machine with Python 3.11+ and make, `make demo` is enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STAMP_ALL := $(VENV)/.installed-all
STAMP_LEAGUE := $(VENV)/.installed-league

# Programs that JAX compiles for one test process serve the others, and the next run. Small ones too: there are
# thousands of them.
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.pytest_cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0

# Test processes run side by side; WORKERS=0 runs the tests in one process with all its threads.
WORKERS ?= 2
ifeq ($(WORKERS),0)
PYTEST := $(BIN)/python -m pytest -q
else
# Each worker keeps to one thread: workers times threads would oversubscribe the cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 \
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadscope
endif

.DEFAULT_GOAL := help
.PHONY: help install demo demo-dask test test-all lint bench league league-quick league-page docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## set up .venv with widegp in it, and nothing else
	@echo "The command is $(BIN)/widegp."

demo: $(STAMP) ## draw a picture and write a report into demo-output/ (under a minute once installed)
	$(BIN)/python examples/demo.py

demo-dask: $(STAMP) ## fit on a cluster of two local processes and compare with the fit in one
	$(BIN)/python examples/demo_dask.py

test: lint ## lint, then run the tests that are quick (ARGS="..." goes to pytest)
	$(PYTEST) $(ARGS)

test-all: lint $(STAMP_ALL) ## all tests: also slow ones, and those of docs, GPyTorch, NumPyro, skops and a browser
	@for name in chromium chromium-browser google-chrome chrome; do \
		command -v $$name >/dev/null && exit 0; done; \
		echo "There is no chromium on the path: the tests of pages in a browser are skipped."
	$(PYTEST) -m "slow or not slow" $(ARGS)

lint: $(STAMP) ## style, types, and the direction of the imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## run the benchmarks (ARGS="peers" picks some; peers: pip install -e ".[bench]")
	$(BIN)/python benchmarks/run.py $(ARGS)

league: $(STAMP_LEAGUE) ## models side by side on every table (hours; goes on where it stopped)
	for study in league sensitivity ablation metric; do \
		$(BIN)/python -m benchmarks.league.run $$study --threads 2 $(ARGS) || exit 1; done
	$(BIN)/python -m benchmarks.league.run scaling --threads $$(nproc) $(ARGS)
	$(MAKE) league-page

league-quick: $(STAMP_LEAGUE) ## a part of the league in a quarter of an hour on two cores, into build/league/
	$(BIN)/python -m benchmarks.league.run quick --workers 2 --threads 1 --budget-seconds 5 \
		--job-seconds 240 --deadline 720 --end 880 --out build/league/league.csv
	$(BIN)/python -m benchmarks.league.page --results build/league --out build/league/league.md

league-page: $(STAMP) ## docs/league.md again, from benchmarks/league/results/*.csv
	$(BIN)/python -m benchmarks.league.page

docs: $(STAMP) ## build the documentation into site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean: ## remove the virtual environment, caches and outputs
	rm -rf $(VENV) build dist demo-output site paper-report
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "widegp needs Python 3.11 or newer; pass one with PYTHON=/path/to/python3." >&2; exit 1; }
	@echo "Installing widegp and its libraries into $(VENV): about 1.8 GB, a minute or two, without a word."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/widegp warmup
	@touch $@

$(STAMP_LEAGUE): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[league]'
	@touch $@

$(STAMP_ALL): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-all]'
	@touch $@
