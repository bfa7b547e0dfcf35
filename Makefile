# `make explore` and `make test` set everything up first. `.venv` is made once, and again only when pyproject.toml or
# constraints.txt changed. Exploring needs the library alone; tests and checks take the extra `dev`, and Super Mario Bros too,
# where it can be had.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FIRST_LOOK := runs/first-look-$(shell date +%Y%m%d-%H%M%S)
STAMP := $(VENV)/.installed
DEV := $(VENV)/.dev
MARIO := $(VENV)/.mario
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup explore test test-fast test-gpu check format docs notebooks wheel-check bench clean

setup: $(DEV)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("element-rl needs Python 3.11 or newer; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(DEV): $(STAMP)
	$(PIP) -e '.[dev]'
	@touch $@

# The whole extra needs a C++ compiler, for a package we do not use; without one, what we use comes alone (docs/mario.md).
# Where neither can be had this says so and goes on; the next `make test` tries again.
$(MARIO): $(DEV)
	@if { $(PIP) --only-binary stable-retro -e '.[dev,mario]' \
	    || { $(PIP) --only-binary :all: stable-retro && $(PIP) --no-deps gym-super-mario-bros; }; } >$@.log 2>&1 \
	  && $(BIN)/python -c 'import stable_retro' >>$@.log 2>&1; \
	then touch $@; \
	else echo '*** Super Mario Bros could not be installed, its tests are SKIPPED; $@.log says why ***'; fi

# A Hopper covers several times a random policy's cells with every seed in this time; of three Ants only one had set out.
explore: $(STAMP)
	$(BIN)/element explore Hopper-v5 --steps 60000 --sac.hidden-sizes 64 64 --video --out $(FIRST_LOOK)

test: setup $(MARIO)
	$(BIN)/python -m pytest -n 2 --dist loadfile -rs

# For work on the code: the files of tests that take little, under 90 seconds on two cores.
test-fast: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m fast

# On a machine with an accelerator, where JAX has been installed for it (extra `cuda`).
test-gpu: setup
	JAX_PLATFORMS= $(BIN)/python -m pytest -m gpu

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'The documentation: site/index.html (open it in a browser; it needs no server)'

# Runs the notebooks as they are, some minutes each, and writes their output into them.
notebooks: setup
	$(BIN)/python tests/support/notebooks.py

# Before a release: the wheel in fresh environments, make wheel-check PYTHONS="python3.11 python3.12"
PYTHONS ?= $(PYTHON)
wheel-check: setup
	$(BIN)/python tests/support/check_wheel.py $(PYTHONS)

bench: setup
	$(PIP) -e '.[dev,bench]'
	$(BIN)/python -m benchmarks.bench_entropy
	$(BIN)/python -m benchmarks.bench_memory --keep
	$(BIN)/python -m benchmarks.bench_memory_growth
	$(BIN)/python -m benchmarks.bench_rewards

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
