# The front door: every command a person types. `make` alone lists them.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
comma := ,
VENV := .venv
BIN := $(VENV)/bin
# What make starts ends with make, even when make is killed: no test run is left behind.
LEASH := $(if $(shell command -v setpriv),setpriv --pdeathsig TERM)
export PYTHONPATH := operator:.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The servers the tests start are on this machine, whatever proxy leads out of it.
export no_proxy := $(if $(no_proxy),$(no_proxy)$(comma))127.0.0.1,localhost

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(VENV)/.installed ## Set up all that lint and test need (first time about 10 minutes)
	@exec $(LEASH) $(BIN)/python -m testbed.install

$(VENV)/.installed: locks/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "make install: Python 3.11 or newer is needed and '$(PYTHON)' is not; install it, or name it: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make install: '$(PYTHON)' cannot make virtual environments; install the module (apt-get install python3-venv)" >&2; exit 2; }
	@echo "Installing the Python packages that locks/dev.txt pins into $(VENV) (about a minute)."
	@$(PYTHON) -m venv --clear $(VENV)
	@# The lock is complete: were pip to resolve anew, a release of tomorrow could break today's install.
	@$(BIN)/pip install --quiet --no-deps --require-hashes -r locks/dev.txt || { \
	  echo "make install: pip could not install locks/dev.txt; check that this machine reaches a package index and has room on its disk" >&2; exit 2; }
	@touch $@

.PHONY: demo
demo: $(VENV)/.installed ## See an order fulfilled and one undone, on this machine alone (CI=1 ends by itself)
	@exec $(LEASH) $(BIN)/python -m testbed.install demo
	@exec $(LEASH) $(BIN)/python -m testbed.demo

.PHONY: demo-kind
demo-kind: install ## See the same with real pods on a kind cluster, and workers that sleep until they are needed
	@exec $(LEASH) $(BIN)/python -m testbed.demo.kind

.PHONY: lint
lint: install ## Check style, types, the import contracts and the Lua scripts
	@exec $(LEASH) $(BIN)/ruff check .
	@exec $(LEASH) $(BIN)/ruff format --check .
	@exec $(LEASH) $(BIN)/mypy
	@exec $(LEASH) $(BIN)/lint-imports
	@$(BIN)/python -m testbed.toolchain node testbed/workers/lua_check.mjs operator/lua

.PHONY: generate
generate: install ## Write deploy/crds/ and the docs' reference and saga table anew from the code
	@$(BIN)/python -m jobgroup.generate deploy/crds
	@$(BIN)/python -m jobgroup.reference docs

.PHONY: picture
picture: install ## Draw docs/demo.svg anew from a run of the demo
	@exec $(LEASH) $(BIN)/python -m testbed.demo.picture docs/demo.svg

.PHONY: format
format: install ## Rewrite the Python code in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: test
test: lint ## Install, lint, then run every test that needs no container engine (ARGS= for pytest, and no coverage then)
	@exec $(LEASH) $(BIN)/python -m pytest --ignore=tests/e2e $(or $(ARGS),-n 3 --dist worksteal --cov --cov-report=term)

.PHONY: planted-bugs
planted-bugs: install ## Check that bugs planted in the Lua, one at a time, are each found (slow)
	@exec $(LEASH) $(BIN)/python -m pytest -m slow tests/sagas/test_planted_bugs.py $(ARGS)

.PHONY: bench
bench: install ## Measure against BullMQ side by side and print ratios (about 15 minutes)
	@exec $(LEASH) $(BIN)/python -m bench

.PHONY: image
image: $(VENV)/.installed ## Build the operator's image with docker or buildah (IMAGE=, BASE=, BUILDER=)
	@exec $(LEASH) $(BIN)/python -m testbed.make_image

.PHONY: e2e
e2e: install ## Run tests/e2e on a kind cluster (KEEP=1 keeps it; ARGS= for pytest)
	@exec $(LEASH) $(BIN)/python -m testbed.e2e $(ARGS)

.PHONY: verify
verify: test e2e ## Run all of it: lint, tests and e2e

.PHONY: lock
lock: install ## Resolve the dependencies anew and write the lock files
	@$(BIN)/python -m testbed.lock

.PHONY: clean
clean: ## Remove what the targets made in this folder
	@rm -rf $(VENV) testbed/workers/node_modules build .coverage* .hypothesis operator/*.egg-info bench/results.json .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
	@echo "Clean. Built binaries stay in $${JOBGROUP_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/jobgroup-operator}; delete that folder to build anew."
