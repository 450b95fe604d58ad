# Two commands do everything: `make demo` and `make test`. Both make their own virtual environment.

VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# Tests that talk to processes wait as much as they compute.
WAITERS ?= $(shell expr 2 '*' $(WORKERS))
TYPEGUARD := --typeguard-packages=core,effects,interpreters --typeguard-packages-ignore=interpreters.sandbox
WORLDS := --ignore tests/core --ignore tests/property --ignore tests/conformance --ignore tests/simulation $(TYPEGUARD)
# Properties that reach lines which no example of tests/core reaches.
COVERING := $(patsubst %,tests/property/test_%.py,claims encoding manifest naming program_ends selection usage)
LOCK := --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --upgrade
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Bytecode is made by all cores instead of by one, and not of what is never imported, or hardly ever.
INSTALL := $(PIP) install --no-compile
SELDOM := /(tests|mypy|mypyc|setuptools|pygments/lexers)/
COMPILE := $(BIN)/python -W ignore -m compileall -q -j 0 -x '$(SELDOM)' $(VENV)/lib

# Tests are run by many processes: none of them compiles what another one has.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test bench lint types rules covered worlds simulate golden journals draw lock clean

help: ## Show what there is to make.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/runtime ## Draw five charts on this machine, with nothing to configure.
	@rm -rf demo-out
	@LOG_LEVEL=WARNING $(BIN)/worker-chart-export run-local --flow-run-path fixtures/flow-runs/five_charts.json --state-dir demo-out
	@find demo-out -name manifest.json -exec $(BIN)/worker-chart-export manifest validate {} +
	@printf '\nMade in demo-out: the updated flow_run, five charts to look at, and their manifest.\n'
	@find demo-out -name '*.json' -o -name '*.png' | sort | sed 's/^/  /'

test: $(VENV)/development ## Lint, types and all tests.
	@$(MAKE) --no-print-directory lint rules
	@$(MAKE) --no-print-directory --jobs 3 types covered worlds

bench: $(VENV)/development ## Measure speed and cost, a table a question; also into benchmarks/RESULTS.md.
	@$(BIN)/python -m benchmarks --into benchmarks/RESULTS.md

lint: $(VENV)/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/development
	$(BIN)/mypy

rules: $(VENV)/development
	$(BIN)/pytest tests/simulation tests/property tests/conformance -n $(WORKERS) --dist worksteal

covered: $(VENV)/development
	$(BIN)/pytest tests/core tests/golden $(COVERING) --cov --hypothesis-profile covering

worlds: $(VENV)/instrumented
	$(BIN)/pytest $(WORLDS) -n $(WAITERS) --dist loadfile --no-loadscope-reorder

simulate: $(VENV)/runtime ## Run a hundred thousand seeds of the simulator.
	$(BIN)/tda simulate --seeds 100000

golden: $(VENV)/development ## Write golden files anew; read the difference before you commit it.
	$(BIN)/pytest tests/golden --update-golden

journals: $(VENV)/development ## Record the journals of the golden tests anew, by real runs.
	@tests/golden/journals/record.sh

draw: $(VENV)/development ## Draw the recorded charts anew.
	$(BIN)/python -m fixtures.draw

lock: $(VENV)/development ## Pin the newest versions of all dependencies, with hashes.
	$(PIP) install uv
	$(BIN)/uv pip compile pyproject.toml --extra build $(LOCK) -o constraints/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --all-extras $(LOCK) -o constraints/development.txt

clean: ## Remove everything that was made here.
	rm -rf $(VENV) demo-out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    exec $$python -m venv $(VENV); fi; \
	done; echo 'Python 3.11, 3.12 or 3.13 is needed; name one with: make PYTHON=/path/to/python3.12 …' >&2; exit 1

$(VENV)/runtime: $(BIN)/python constraints/runtime.txt pyproject.toml
	$(INSTALL) --require-hashes -r constraints/runtime.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/development: $(BIN)/python constraints/development.txt pyproject.toml
	$(INSTALL) --require-hashes -r constraints/development.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

# What pytest and typeguard make of modules is kept beside them; made once, it is not made by each worker.
$(VENV)/instrumented: $(VENV)/development
	@$(BIN)/pytest $(WORLDS) --collect-only -qq >/dev/null
	@touch $@
