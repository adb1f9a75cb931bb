# make demo and make test do all of their own set-up inside .venv; nothing else is touched.
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test lint types contracts check bench bench-quick bench-methods peers clean

help:  ## say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14

$(VENV)/.base: pyproject.toml tools/make_venv.sh
	@test -x $(BIN)/python || { echo "Setting up $(VENV) ..."; tools/make_venv.sh $(VENV); }
	@echo "Installing brainweave into $(VENV) (once; a minute or two) ..."
	@$(PIP) install -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo "Installing the test tools into $(VENV) ..."
	@$(PIP) install -e ".[dev]"
	@touch $@

demo: $(VENV)/.base  ## align a simulated study that no time-locked method can align
	@$(BIN)/brainweave demo out/demo

test: $(VENV)/.dev  ## unit tests and doctests
	@tools/install_browser.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev  ## style and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src tests docs benchmarks README.md CHANGELOG.md CONTRIBUTING.md

types: $(VENV)/.dev  ## mypy, strict
	$(BIN)/mypy

contracts: $(VENV)/.dev  ## who may import whom
	$(BIN)/lint-imports

check: lint types contracts test  ## the whole gate

bench: $(VENV)/.dev  ## speed and memory, each as a ratio to a floor of the same run
	$(BIN)/python benchmarks/bench_gdm.py
	$(BIN)/python benchmarks/bench_evaluation.py
	$(BIN)/python benchmarks/bench_table2.py
	$(MAKE) bench-methods

bench-quick: $(VENV)/.dev  ## the same on small shapes: does it run at all?
	$(BIN)/python benchmarks/bench_gdm.py --quick
	$(BIN)/python benchmarks/bench_evaluation.py --quick
	$(BIN)/python benchmarks/bench_table2.py --quick

$(PEERS)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(PEERS)/bin/python || { echo "Setting up $(PEERS) ..."; tools/make_venv.sh $(PEERS); }
	@echo "Installing other implementations into $(PEERS) (once; a few minutes, 2 GB) ..."
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install -e ".[peers]" pytest pytest-timeout hypothesis psutil
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --quiet install tensorflow-cpu \
		|| echo "tensorflow-cpu does not install here: BrainIAK's SSSRM will be skipped."
	@touch $@

peers: $(PEERS)/.ready  ## compare with other implementations, in an environment of their own
	$(PEERS)/bin/python -m pytest tests/peers -p no:cacheprovider

bench-methods: $(PEERS)/.ready
	$(PEERS)/bin/python benchmarks/bench_methods.py --robust --memory

clean:  ## remove the environment and all caches
	rm -rf $(VENV) $(PEERS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
