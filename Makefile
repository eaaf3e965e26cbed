# Everything runs in .venv of this clone, which the first target that needs it creates.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS ?= dev,digits,plots
DEMO   := runs/demo
PARTS  ?=
BASE   ?= HEAD~1
SHELL  := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-torch test-mkl test-long lint bench bench-quick bench-compare experiments golden clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A python of another name may do: the first that is 3.11 or newer.
$(VENV)/.stamp: pyproject.toml
	@python=$$(for p in $(PYTHON) python3.12 python3.13 python3; do \
	    command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done); \
	  if [ -z "$$python" ]; then echo "make: ampc needs Python 3.11 or newer; found none" >&2; exit 1; fi; \
	  test -x $(BIN)/python || "$$python" -m venv $(VENV)
	@echo "installing ampc into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@touch $@

setup: $(VENV)/.stamp ## create .venv and install ampc with its development tools

demo: $(VENV)/.stamp ## compile, draw and train list reduction to 97 % validation accuracy
	@$(BIN)/python -m ampc data list_reduction -o $(DEMO)/data --if-missing
	@$(BIN)/python -m ampc compile models/list_reduction.amp --data $(DEMO)/data -o $(DEMO)/list_reduction.ampx
	@$(BIN)/python -m ampc view $(DEMO)/list_reduction.ampx -o $(DEMO)/list_reduction.svg
	@$(BIN)/python -m ampc run $(DEMO)/list_reduction.ampx/manifest.json --data $(DEMO)/data --until 'accuracy >= 0.97' \
	    -o $(DEMO)/run --force
	@printf '\n  manifest    %s\n  picture     %s\n  run folder  %s\n' \
	    $(DEMO)/list_reduction.ampx/manifest.json $(DEMO)/list_reduction.svg $(DEMO)/run

test: $(VENV)/.stamp ## run the tests
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'not compiled and not torch and not long'
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m 'compiled and not torch and not long'

test-torch: $(VENV)/.stamp ## run the tests that compare with PyTorch (installs it)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS),torch]'
	$(BIN)/python -m pytest -q -m torch

test-mkl: .venv-bench/.stamp ## run the compiled tests with MKL, products of bf16 among them (installs it)
	.venv-bench/bin/python -m pytest -q -m 'compiled and not torch and not long'

test-long: $(VENV)/.stamp ## run the tests that take minutes
	$(BIN)/python -m pytest -q -m 'long and not compiled'
	$(BIN)/python -m pytest -q -m 'long and compiled'

lint: $(VENV)/.stamp ## ruff and mypy --strict
	$(BIN)/python -m ruff check src tests benchmarks experiments
	$(BIN)/python -m mypy

# PyTorch is large: it has a place of its own. Rivals that can't be installed here are lines without figures.
.venv-bench/.stamp: $(VENV)/.stamp
	@test -x .venv-bench/bin/python || $(BIN)/python -m venv .venv-bench
	@echo "installing ampc, MKL, PyTorch and other rivals into .venv-bench"
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS),mkl,torch]' || \
	  .venv-bench/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS),torch]'
	@for rival in torch_geometric dyNET38 'jax[cpu]'; do \
	    .venv-bench/bin/python -m pip install --quiet --disable-pip-version-check "$$rival" || echo "$$rival can't be installed here: left out"; done
	@touch $@

bench: .venv-bench/.stamp ## speed beside PyTorch and others (installs them), into docs/benchmarks.md; PARTS="mnist ..." for some
	.venv-bench/bin/python -m benchmarks.run --write $(PARTS)

bench-quick: .venv-bench/.stamp ## the same in fewer and shorter windows; writes nothing
	.venv-bench/bin/python -m benchmarks.run --quick $(PARTS)

bench-compare: .venv-bench/.stamp ## speed of this commit beside that of BASE=<commit>, in one run
	.venv-bench/bin/python -m benchmarks.against $(BASE)

experiments: $(VENV)/.stamp ## train every task to its target, async and sync (hours), into docs/results.md; TASKS="qm9 ..." for some
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	$(BIN)/python -m experiments.run $(TASKS)

golden: $(VENV)/.stamp ## rewrite the expected outputs of the golden tests; read the diff
	AMPC_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q -m 'not compiled and not torch and not long' -k golden

clean: ## remove .venv, caches and runs of the demo
	rm -rf $(VENV) $(DEMO) build .pytest_cache .mypy_cache .ruff_cache
