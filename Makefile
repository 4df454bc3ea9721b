# Two commands do everything on a machine with Python 3.11+ and make:
#   make demo    the whole job on an embedded synthetic city
#   make test    lint, types and tests
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.installed-demo
BENCH  := $(VENV)/.installed-bench
DOCS   := $(VENV)/.installed-docs

.PHONY: help setup demo test test-all lint bench docs fuzz hashes clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##/\1:/p' $(MAKEFILE_LIST) | column -t -s:

setup: $(STAMP)  ## a virtual environment in .venv with everything installed

# Makes the environment if there is none.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "geoblanket needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing geoblanket into $(VENV) (once; about a minute) ..."
	@$(BIN)/python -m pip install --quiet 'pip>=25.1'
endef

$(STAMP): pyproject.toml constraints.txt
	$(environment)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group test -e '.[all]'
	@touch $@ $(DEMO)

# What the demonstration needs, and no tools for tests. An environment that has more keeps it.
$(DEMO): pyproject.toml constraints.txt
	$(environment)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[city,service]'
	@touch $@

$(BENCH): $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	@touch $@

$(DOCS): $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group docs
	@touch $@

demo: $(DEMO)  ## the main job on the synthetic city, from raw traces to verified, perturbed reports
	@$(BIN)/python docs/demo.py demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, types and the default tests
	@command -v node >/dev/null || echo "Node is not installed: the JavaScript client (clients/javascript) is NOT tested." >&2
	$(BIN)/pytest -n 2 --dist loadfile

test-all: lint $(BENCH) $(DOCS)  ## the default tests and the slow ones
	@command -v node >/dev/null || echo "Node is not installed: the JavaScript client (clients/javascript) is NOT tested." >&2
	$(BIN)/pytest -n 2 --dist loadfile -m "slow or not slow" --hypothesis-profile=search

bench: $(BENCH)  ## every benchmark, each against its peer in the same run
	$(BIN)/python -m benchmarks

docs: $(DOCS)  ## the documentation as a site that needs no internet, in build/docs
	$(BIN)/sphinx-build -W --keep-going -j auto -q -d build/doctrees docs build/docs
	@echo "Open build/docs/index.html in a browser."

fuzz: $(STAMP)  ## every reader of files against changed files, for hours; finds go to fuzz-finds (FUZZ="--seconds 60")
	$(BIN)/python -m tests.fuzz $(FUZZ)

# From pip's own report of what it would install; no address of an index is kept.
define HASHED
import json, platform, sys
where = "Python %d.%d on %s %s" % (*sys.version_info[:2], platform.system(), platform.machine())
print(f"# What `make setup` installs, with the hash of each file, for {where}. Made by: make hashes")
print("# CONTRIBUTING.md says how to install from it.")
for item in sorted(json.load(sys.stdin)["install"], key=lambda item: item["metadata"]["name"].lower()):
    if hashes := item["download_info"].get("archive_info", {}).get("hashes"):
        print(item["metadata"]["name"], "==", item["metadata"]["version"], " --hash=sha256:", hashes["sha256"], sep="")
endef
export HASHED

hashes: $(STAMP)  ## requirements-hashed.txt anew, for this Python and this machine
	@$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --only-binary :all: --report build-report.json \
		-c constraints.txt --group test 'hatchling>=1.27' 'editables>=0.5' '.[all]'
	@$(BIN)/python -c "$$HASHED" < build-report.json > requirements-hashed.txt; rm build-report.json

clean:  ## remove what was built (not your data)
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
