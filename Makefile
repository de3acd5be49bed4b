# Every command of the project. `make` without a target lists them.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
# The kernel ends what make started when make is killed, so no test run is left behind.
LEASH := $(if $(shell command -v setpriv),setpriv --pdeathsig TERM)
export PYTHONPATH := operator:.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The servers that the tests start are on this machine and must not be asked through a proxy.
export no_proxy := $(if $(no_proxy),$(no_proxy)$(comma))127.0.0.1,localhost

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(VENV)/.installed ## Install or build what lint and the tests need (about 10 minutes the first time)
	@exec $(LEASH) $(BIN)/python -m testbed.build.install

$(VENV)/.installed: locks/dev.txt
	@# --clear below empties the folder that a link leads to, which may belong to another clone.
	@test ! -L $(VENV) || { \
	  echo "make install: '$(VENV)' is a link and locks/dev.txt is newer than what is installed there; run make install where the link leads to, or remove the link" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make install: Python 3.11 or newer is needed, but '$(PYTHON)' is older or missing; install it, or name it: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make install: '$(PYTHON)' cannot create virtual environments; install its venv module (apt-get install python3-venv)" >&2; exit 2; }
	@echo "Installing the Python packages that locks/dev.txt pins into $(VENV) (about a minute)."
	@$(PYTHON) -m venv --clear $(VENV)
	@# The lock lists every package: --no-deps keeps pip from resolving a newer release.
	@$(BIN)/pip install --quiet --no-deps --require-hashes -r locks/dev.txt || { \
	  echo "make install: pip could not install locks/dev.txt; check that this machine reaches a package index and has free disk space" >&2; exit 2; }
	@touch $@

.PHONY: demo
demo: $(VENV)/.installed ## Run an order that completes and one that is undone, on this machine (CI=1 exits at the end)
	@exec $(LEASH) $(BIN)/python -m testbed.build.install demo
	@exec $(LEASH) $(BIN)/python -m testbed.demo

.PHONY: demo-kind
demo-kind: install ## Run the same in pods on a kind cluster, with workers that scale from zero
	@exec $(LEASH) $(BIN)/python -m testbed.demo.kind

.PHONY: lint
lint: install ## Check style, types, import contracts and the Lua scripts
	@exec $(LEASH) $(BIN)/ruff check .
	@exec $(LEASH) $(BIN)/ruff format --check .
	@exec $(LEASH) $(BIN)/mypy
	@exec $(LEASH) $(BIN)/lint-imports
	@$(BIN)/python -m testbed.build.toolchain node testbed/workers/lua_check.mjs operator/lua

.PHONY: generate
generate: install ## Generate deploy/crds/, the reference pages, the saga table and the README of the chart
	@$(BIN)/python -m jobgroup.crd.generate deploy/crds
	@$(BIN)/python -m jobgroup.crd.reference docs
	@$(BIN)/python -m testbed.support.chart deploy/helm

.PHONY: freeze
freeze: install ## Write the groups in every state that tests/sagas/frozen lacks for the stored format; no file twice
	@exec $(LEASH) $(BIN)/python -m tests.sagas.frozen.freeze $(ARGS)

.PHONY: picture
picture: install ## Draw docs/demo.svg from a run of the demo
	@exec $(LEASH) $(BIN)/python -m testbed.demo.picture docs/demo.svg

.PHONY: format
format: install ## Format the Python code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: unit
unit: $(VENV)/.installed ## Run the tests that need no server, without lint (under 30 seconds; ARGS= for pytest)
	@exec $(LEASH) $(BIN)/python -m pytest -m unit $(or $(ARGS),tests/jobgroup tests/handlers tests/sagas/histories -q)

.PHONY: test
test: lint ## Lint, then run every test that needs no container engine (ARGS= for pytest, then without coverage)
	@exec $(LEASH) $(BIN)/python -m pytest --ignore=tests/e2e $(or $(ARGS),-n 4 --dist worksteal --cov --cov-report=term)

.PHONY: histories
histories: export HISTORIES := $(or $(HISTORIES),2000)
histories: install ## Check the rules in 2,000 random histories, where `make test` runs 300 (HISTORIES=, ARGS= for pytest)
	@exec $(LEASH) $(BIN)/python -m pytest tests/sagas/histories/test_histories.py $(or $(ARGS),-n 2)

.PHONY: redis-matrix
redis-matrix: install ## Run the tests of sagas on each kind of Redis (KINDS=cluster,redis-8.0; CI=1: what CI runs; ARGS=)
	@exec $(LEASH) $(BIN)/python -m testbed.matrix

.PHONY: failover
failover: export KILLS := $(or $(KILLS),50)
failover: export AWAY := $(or $(AWAY),60)
failover: install ## Kill 50 masters of Sentinel and of a Cluster under sagas, and more (KILLS=, AWAY= seconds, ARGS= for pytest)
	@exec $(LEASH) $(BIN)/python -m pytest tests/sagas/failover -s -m "slow or not slow" $(ARGS)

.PHONY: planted-bugs
planted-bugs: install ## Plant bugs in the Lua scripts, one at a time, and check that the histories find each (slow)
	@exec $(LEASH) $(BIN)/python -m pytest -m slow tests/sagas/histories/test_planted_bugs.py $(ARGS)

.PHONY: bench
bench: export ROWS := $(ROWS)
bench: install ## Measure side by side with BullMQ, and print a summary (about 20 minutes; ROWS=memory,settling or help)
	@exec $(LEASH) $(BIN)/python -m bench

.PHONY: bench-compare
bench-compare: $(VENV)/.installed ## Print what changed between the last two runs of `make bench` (OLD=, NEW= files)
	@$(BIN)/python -m bench.compare $(OLD) $(NEW)

.PHONY: image
image: $(VENV)/.installed ## Build the operator's image with docker or buildah (IMAGE=, BASE=, BUILDER=)
	@exec $(LEASH) $(BIN)/python -m testbed.images.make_image image

.PHONY: images
images: $(VENV)/.installed ## Build every image: operator, Redis, the example's workers (REGISTRY=, BASE=, BUILDER=)
	@exec $(LEASH) $(BIN)/python -m testbed.images.make_image images

.PHONY: push
push: $(VENV)/.installed ## Build every image and push it to a registry (REGISTRY=, BASE=, BUILDER=)
	@exec $(LEASH) $(BIN)/python -m testbed.images.make_image push

.PHONY: load
load: $(VENV)/.installed ## Build every image and load it into the kind cluster of the current context (CLUSTER=)
	@exec $(LEASH) $(BIN)/python -m testbed.images.make_image load

.PHONY: e2e
e2e: install ## Run tests/e2e on a kind cluster (KEEP=1 keeps the cluster; ARGS= for pytest)
	@exec $(LEASH) $(BIN)/python -m testbed.cluster.e2e $(ARGS)

.PHONY: e2e-clean
e2e-clean: $(VENV)/.installed ## Delete the cluster that `KEEP=1 make e2e` kept, and stop its private engine
	@exec $(LEASH) $(BIN)/python -m testbed.cluster.clean

.PHONY: verify
verify: unit test histories e2e ## Run every check: lint, and the tests of all tiers

.PHONY: lock
lock: install ## Resolve the dependencies and write the lock files
	@$(BIN)/python -m testbed.build.lock

.PHONY: clean
clean: ## Remove what the other targets created in this folder
	@rm -rf $(VENV) testbed/workers/node_modules build .coverage* .hypothesis operator/*.egg-info bench/results .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@echo "Removed. Built binaries remain in $${JOBGROUP_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/jobgroup-operator}; delete that folder to rebuild them."
