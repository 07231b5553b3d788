# Everything a developer types. `make demo` and `make test` need Python 3.11, make and bash, nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
SHELL  := bash
.SHELLFLAGS := -o pipefail -c

# Some environments forbid Python to keep compiled bytecode. Each process (a run has a dozen, the tests thousands) would
# compile torch, Ray, Beam or Prefect anew, which doubles the time to import them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo engines test check gpu rehearsal sanitise wheels lint format clean
setup: $(READY)          ## create .venv and install the pinned set

demo: $(READY)           ## simulated log -> release -> report, in minutes
	$(BIN)/clicktower demo --work clicktower-demo

# CLICKTOWER_ENGINES names another folder, for this and for every command.
engines: $(READY)        ## prism, Flink, servers of S3 and GCS, Lucene, OpenSearch (needs go, java, mvn, cc; minutes once)
	$(BIN)/python deploy/engines/install.py $(or $(CLICKTOWER_ENGINES),.engines)

BY_FILE  := --dist loadfile --no-loadscope-reorder
SELECTED ?= -m "not rehearsal"

test: $(READY)           ## the tests, real engines included; those of engines that are not there are skipped
	$(BIN)/python -m pytest $(SELECTED) --numprocesses auto $(BY_FILE)

check: lint              ## before each commit: linters, types, and the quick tests
	$(BIN)/python -m pytest -m "not engine and not slow and not rehearsal" --numprocesses auto --dist loadfile

gpu: $(READY)            ## on a machine with a GPU, in 15 minutes: its check, its tests, the benchmark beside cuDNN, a profile
	$(BIN)/clicktower doctor
	$(BIN)/python -m pytest -m gpu -s
	$(BIN)/python benchmarks/training.py --device cuda --minibatch 1024 --repeats 3 --record

rehearsal: $(READY)      ## the long tests: killed at many points, nodes lost, strange surroundings, extras alone
	$(BIN)/python -m pytest -m rehearsal --numprocesses 2 $(BY_FILE)

sanitise: $(READY)       ## the compiled parts under the address and undefined-behaviour sanitisers (needs g++)
	$(BIN)/python -m tests.sanitised --minutes $(or $(MINUTES),5)

wheels: $(READY)         ## dist/: the source, and a wheel for each Python (needs Docker or Podman)
	$(BIN)/uv build --sdist --out-dir dist
	$(BIN)/uv tool run cibuildwheel --output-dir dist

lint: $(READY)           ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

format: $(READY)         ## let ruff order imports and lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:                   ## remove the environment and the demo
	rm -rf $(VENV) clicktower-demo

# uv installs in seconds what pip installs in minutes, so pip only brings uv. It names the large packages as it fetches
# them; its list of all that were installed is left out.
$(READY): pyproject.toml setup.py constraints.txt $(wildcard training/kernel/*.cpp training/kernel/*.h training/kernel/*.inc \
          beam_jobs/compiled/*.cpp beam_jobs/compiled/*.h)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.version_info >= (3, 13))' \
	  || { echo "clicktower needs Python 3.11 or 3.12; found $$($(PYTHON) --version). Try: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into $(VENV) (about 7 GB with torch's GPU libraries; a minute or two the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@mkdir -p .names/clicktower && ln -sfn $(CURDIR)/{schemas,beam_jobs,training,flows} .names/clicktower
	@$(BIN)/uv pip install --python $(BIN)/python --constraint constraints.txt --editable '.[dev]' 2>&1 | sed '/^ [+~-] /d'
	@touch $@
