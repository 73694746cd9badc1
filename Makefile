# Every target sets up what it needs in .venv; nothing has to be activated or installed beforehand but Python >= 3.11, pip and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help test fast-tests test-slow test-cpus test-lowest test-torch lint format demo bench docs dist clean

# The first Python that is new enough; `make PYTHON=/path/to/python test` chooses another.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
endif

# uv from the PATH where it works, otherwise one of our own, fetched by pip into .venv-uv.
ifndef UV
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .venv-uv/bin/uv)
endif
UV_FILE := $(filter .venv-uv/bin/uv,$(UV))

BIN := .venv/bin
# One thread a process: two test workers share the machine. With `make THREADS=2 test` sums are added in another order;
# threads that wait must then sleep, not spin.
THREADS ?= 1
WORKERS ?= 2
# What Python has compiled is kept, even where the environment says otherwise: many tests start a Python of their own, and
# to compile torch anew takes each of them 4 s.
IN_THREADS := OMP_NUM_THREADS=$(THREADS) MKL_NUM_THREADS=$(THREADS) OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=
PYTEST := $(IN_THREADS) $(BIN)/python -m pytest
# Each worker has half of the files and takes from the other what that has left: fixtures of a file are made once.
PARALLEL := -n $(WORKERS) --dist worksteal

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

test: .venv/.installed-test  ## lint, types and all tests but the slow ones
	@$(MAKE) --no-print-directory -j 2 lint fast-tests

# `make test` is this, with lint beside it.
fast-tests: .venv/.installed-test
	$(PYTEST) $(PARALLEL)

test-cpus: .venv/.installed-test  ## the tests with other instructions of the processor and with two threads: last digits differ
	for cpu in default avx2; do for threads in 1 2; do \
	  echo "ATEN_CPU_CAPABILITY=$$cpu, $$threads threads"; \
	  ATEN_CPU_CAPABILITY=$$cpu $(MAKE) --no-print-directory THREADS=$$threads fast-tests; \
	done; done

test-slow: .venv/.installed-test  ## only the slow tests
	$(PYTEST) -m slow

# What the bounds in pyproject.toml are about: files, pages, services and commands. torch is the one of make test.
LOWEST_TESTS ?= papers/tests/datasets tests/app tests/data tests/decide tests/models tests/plots tests/posteriors/test_saving.py tests/report tests/serve tests/batch tests/findings tests/specs tests/test_unusual_models.py tests/test_demo.py tests/cli
test-lowest: .venv-lowest/.installed  ## files, pages, services and commands on the lowest versions that pyproject.toml allows
	$(IN_THREADS) .venv-lowest/bin/python -m pytest $(LOWEST_TESTS)

# The engine reads autograd's own graph, whose names may change with every version: the lowest that pyproject.toml allows,
# one in between, and the newest that there is. What torch warns of itself in another version is no failure.
TORCHES ?= 2.6.0 2.10.0 newest
TORCH_TESTS ?= tests/trace tests/scores tests/quantities tests/models tests/test_modes.py
test-torch: $(TORCHES:%=.venv-torch-%/.installed)  ## the engine on the lowest torch, one in between and the newest
	failed=""; for v in $(TORCHES); do echo "torch $$v"; \
	  $(IN_THREADS) .venv-torch-$$v/bin/python -m pytest -W default $(TORCH_TESTS) || failed="$$failed $$v"; done; \
	test -z "$$failed" || { echo "tests failed with torch:$$failed"; exit 1; }

lint: .venv/.installed-test  ## ruff (rules and layout) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed-test  ## let ruff lay out the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: .venv/.installed-demo  ## in a minute: which pictures a small CNN should not be trusted on, and why; writes nescio-demo.html
	$(BIN)/nescio demo

bench: .venv/.installed-bench  ## time the engine against the papers' loop, torch.func and BackPACK
	$(BIN)/python benchmarks/gradients.py

docs: .venv/.installed-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(IN_THREADS) $(BIN)/python -m mkdocs build --strict

# uv builds the wheel from the sdist, so the sdist holds all that it needs.
dist: .venv/.installed-release  ## both packages into dist/ and papers/dist/, checked as a package index would
	rm -rf dist papers/dist build papers/build
	$(UV) build --quiet --build-constraints constraints.txt --out-dir dist .
	$(UV) build --quiet --build-constraints constraints.txt --out-dir papers/dist papers
	$(BIN)/twine check --strict dist/* papers/dist/*
	$(BIN)/check-wheel-contents dist papers/dist

clean:  ## remove the environments, caches and written reports
	rm -rf .venv .venv-lowest .venv-torch-* .venv-uv build dist site src/*.egg-info papers/src/*.egg-info papers/build papers/dist .pytest_cache .mypy_cache .ruff_cache .hypothesis nescio-demo.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- setting up -----------------------------------------------------------------------------------------------------

.venv/.installed-test: EXTRAS := test,files,demo,data,serve,app,dev
.venv/.installed-docs: EXTRAS := docs,demo,files,data
.venv/.installed-demo: EXTRAS := demo,files
.venv/.installed-bench: EXTRAS := bench,files
.venv/.installed-release: EXTRAS := release
.venv/.installed-test .venv/.installed-docs .venv/.installed-bench: PAPERS := -e papers

.venv/.installed-%: pyproject.toml papers/pyproject.toml constraints.txt $(UV_FILE) | .venv/bin/python
	$(UV) pip install --python $(BIN)/python -c constraints.txt --build-constraints constraints.txt -e '.[$(EXTRAS)]' $(PAPERS)
	@touch $@

.venv/bin/python: | $(UV_FILE)
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 was found on the PATH. Install one, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	$(UV) venv --allow-existing --python "$$("$(PYTHON)" -c 'import sys; print(sys.executable)')" .venv

.venv-lowest/.installed: pyproject.toml papers/pyproject.toml constraints.txt $(UV_FILE) | .venv/bin/python
	$(UV) venv --clear --python $(BIN)/python .venv-lowest
	grep '^torch==' constraints.txt > .venv-lowest/torch.txt
	$(UV) pip install --python .venv-lowest/bin/python --resolution lowest-direct -c .venv-lowest/torch.txt -e '.[test,files,demo,data,timm,hf,serve,app]' -e papers
	@touch $@

# Triton's interpreter of those days needs them.
OF_THEN := 'numpy<2.4' setuptools
.venv-torch-%/.installed: pyproject.toml papers/pyproject.toml $(UV_FILE) | .venv/bin/python
	$(UV) venv --allow-existing --python $(BIN)/python .venv-torch-$*
	$(UV) pip install --python .venv-torch-$*/bin/python -U $(if $(filter newest,$*),torch,torch==$* $(OF_THEN)) -e '.[test,files,data,timm,hf]' -e papers
	@touch $@

# --target leaves the system's own packages alone and works where pip may not write to them.
.venv-uv/bin/uv:
	@test -n "$(PYTHON)" || { echo "No Python >= 3.11 was found on the PATH. Install one, or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	"$(PYTHON)" -m pip install --quiet --upgrade --target .venv-uv -c constraints.txt uv
	@touch $@
