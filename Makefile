# Everything runs in its own virtual environment; only Python 3.11 and make must be there.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
RUNS ?= runs
JOBS ?= 2
EXAMPLES ?= 800
MINUTES ?= 10

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
DEV := .[dev,docs,parquet,plot,rl,oracle]
# For `make constraints`: the version whose CPU build is at hand.
TORCH := torch==2.13.0
OLDEST := .venv-numba-oldest
OLDEST_TESTS ?= not sglang and not trtllm
RATIOS := aisim_gym/bench/recorded.json
INTERPRETED := tests/conformance/test_interpreted.py
CHECKED := tests/conformance/test_goldens.py tests/envs/test_episode.py tests/fuzz/test_found.py \
	tests/replay/test_properties.py::test_results_do_not_depend_on_the_first_size_of_the_tables

# One thread each: JOBS processes already fill the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q
PARALLEL := -n $(JOBS) --dist worksteal
# What needs no other: as many at a time as there are cores.
TOGETHER = $(MAKE) --no-print-directory -j$(JOBS)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench-check numba-oldest numba-range differential fuzz docs pages \
	format lint style mypy pyright kernel checked-kernel constraints clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Replay, plan and plot an example into runs/ (about 3 minutes the first time)
	@echo "Running the demo: half a minute, and as long again if the kernel is not compiled yet"
	@$(BIN)/aisim-gym demo --out $(RUNS)/demo

test: $(VENV)/.dev ## Run all checks and the whole test suite (10 minutes on two cores)
	@echo "Checking style and types, compiling with and without index checks: 4 minutes"
	@$(TOGETHER) lint kernel checked-kernel
	@echo "Running all tests in $(JOBS) processes: 4 minutes"
	@$(PYTEST) $(PARALLEL)
	@if [ -e $(INTERPRETED) ]; then \
		echo "Running a slice of them as plain Python, without compilation: half a minute"; \
		NUMBA_DISABLE_JIT=1 $(PYTEST) $(PARALLEL) $(INTERPRETED); \
	fi
	@echo "Running recorded runs and episodes with every index checked: half a minute"
	@NUMBA_BOUNDSCHECK=1 $(PYTEST) $(PARALLEL) $(CHECKED)
	@$(MAKE) --no-print-directory bench-check

check: $(VENV)/.dev ## Run the checks and the fast tests (3 minutes): what to do before a commit
	@$(TOGETHER) lint kernel
	@echo "Running the fast tests in $(JOBS) processes"
	@$(PYTEST) $(PARALLEL) -m 'not slow'

bench-check: kernel ## Fail if a ratio of speeds is half of the recorded one (seconds)
	@echo "Comparing ratios of speeds with the recorded ones: half a minute at most"
	@$(BIN)/aisim-gym bench scenarios fleet batch --short --check $(RATIOS)

numba-oldest: $(VENV)/.dev $(OLDEST)/.installed ## Test a slice with the oldest Numba that is allowed (2 minutes)
	@echo "Testing a slice with the oldest Numba that is allowed"
	@OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q -p no:cacheprovider \
		tests/test_numba_range.py tests/test_numba_adapter.py -m 'not slow' -k '$(OLDEST_TESTS)'

numba-range: kernel ## Test a slice with the oldest and with the newest Numba (3 minutes)
	@$(MAKE) --no-print-directory numba-oldest OLDEST_TESTS=
	@echo "Testing the same slice with the newest"
	@$(PYTEST) tests/test_numba_range.py tests/test_numba_adapter.py -m 'not slow'

differential: kernel ## Compare 2400 random runs with the reference and log what they were (minutes)
	@PYTHONPATH=tests $(BIN)/python -m conformance.campaign \
		--examples $(EXAMPLES) --out $(RUNS)/differential

fuzz: $(VENV)/.dev ## Run random laws on the checked build for MINUTES, with fresh seeds
	@PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) --jobs $(JOBS) --out $(RUNS)/fuzz

docs: $(VENV)/.dev ## Build the documentation into build/docs (half a minute)
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "Written: build/docs/index.html"

pages: $(VENV)/.dev ## Write the pages that are made from the code: fields, commands, API
	@$(BIN)/python docs/generate.py

lint: $(VENV)/.dev ## Check style, format and types (a minute the first time)
	@$(TOGETHER) style mypy pyright

style: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

mypy: $(VENV)/.dev
	@$(BIN)/mypy

pyright: $(VENV)/.dev
	@$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.dev ## Format the sources and sort their imports
	@$(BIN)/ruff check --fix-only --quiet --select I
	@$(BIN)/ruff format

kernel: $(VENV)/.dev ## Compile the kernel, once per version of its sources (1-2 minutes)
	@$(BIN)/aisim-gym warmup --all

checked-kernel: $(VENV)/.dev
	@NUMBA_BOUNDSCHECK=1 $(BIN)/aisim-gym warmup --all

constraints: $(VENV)/bin/python ## Renew the pinned versions from the newest that fit
	@echo "Installing the newest versions: minutes"
	@$(PIP) install --upgrade --upgrade-strategy eager -e '$(DEV)' $(TORCH)
	@sed -n '/^#/p' .ci/constraints.txt > $(VENV)/constraints.txt
	@$(BIN)/python -m pip list --format freeze --exclude-editable --exclude pip \
		| sed 's/+cpu$$//' >> $(VENV)/constraints.txt
	@mv $(VENV)/constraints.txt .ci/constraints.txt

clean: ## Remove the environment, caches and build results; runs/ stays
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@echo "Making a virtual environment in $(VENV)"
	@"$(PYTHON)" -m venv $(VENV)

# Stamps: nothing is installed again until the requirements change.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml .ci/constraints.txt
	@echo "Installing aisim-gym with its plots: about a minute"
	@$(PIP) install -c .ci/constraints.txt -e '.[plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml .ci/constraints.txt
	@echo "Installing aisim-gym with everything the tests need, PyTorch included: 1-5 minutes"
	@$(PIP) install -c .ci/constraints.txt -e '$(DEV)'
	@touch $@

$(OLDEST)/.installed: $(VENV)/bin/python pyproject.toml .ci/numba-oldest.txt
	@echo "Installing the oldest Numba that is allowed into $(OLDEST): a minute"
	@"$(PYTHON)" -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check -qq install \
		-c .ci/numba-oldest.txt -e . pytest pytest-xdist hypothesis
	@touch $@
