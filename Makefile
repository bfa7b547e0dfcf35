# `make explore` and `make test` set everything up first. `.venv` is made once, and again only
# when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := dev
FIRST_LOOK := runs/first-look-$(shell date +%Y%m%d-%H%M%S)
STAMP := $(VENV)/.installed

.PHONY: setup explore test check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("element-rl needs Python 3.11 or newer; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

explore: setup
	$(BIN)/element explore Ant-v5 --steps 12000 --out $(FIRST_LOOK)

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS),bench]'
	$(BIN)/python -m benchmarks.bench_entropy
	$(BIN)/python -m benchmarks.bench_memory --keep
	$(BIN)/python -m benchmarks.bench_memory_growth
	$(BIN)/python -m benchmarks.bench_rewards

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
