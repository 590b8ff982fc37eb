# The two commands that matter: `make demo` and `make test`. Everything is installed into .venv and nowhere else.
#
#   PYTHON=python3.12    another interpreter (3.11 or later)
#   TORCH_INDEX=URL      where torch comes from: set it to PyTorch's CPU index for a build without CUDA
#   TEST_PROCESSES=1     tests one after the other; by default two at a time, since most of them wait for a server

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
TEST_PROCESSES ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt
INPUTS := pyproject.toml .ci/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test check test-long bench lock clean

help:
	@echo "make demo       install, serve a real small model, sweep it, select a capacity, write a report"
	@echo "make test       the whole test suite, as CI runs it"
	@echo "make test-long  soaks and simulations that take longer"
	@echo "make check      format, lint, types, import laws"
	@echo "make bench      benchmarks of benchlab itself"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "benchlab needs Python 3.11 or later: set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python $(INPUTS)
	$(PIP) -e .
	touch $@

$(VENV)/.engine: $(VENV)/.base
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(PIP) -e '.[engine]'
	touch $@

$(VENV)/.dev: $(VENV)/.engine
	$(PIP) -e '.[engine,tokens,dev]'
	touch $@

install: $(VENV)/.base

# Tests share the machine with each other, and some of them measure it: what fails is named, and run again alone. Only
# what fails twice fails the suite.
FAST_TESTS = $(BIN)/python -m pytest -q -m 'not slow and not gpu'

# One thread for the engine, the rest of the machine for the client. Where the last rate is too much the stage is
# `overloaded`, which is a finding about the engine and no fault of the measurement. The arrival seed is one
# whose short stages hold about as many requests as their rates say.
DEMO_RATES ?= 0.5,1,1.5,6

demo: $(VENV)/.engine
	$(BIN)/benchlab engine fetch smollm2-135m
	$(BIN)/benchlab sweep --engine bundled -m smollm2-135m --engine-threads 1 -d chat-short \
		-r $(DEMO_RATES) -c 2 --duration 24s --warmup 4s --drain 8s --arrival-seed 91 \
		--objective 'ttft.p90<=2s' --objective 'tpot.p50<=300ms' --slo ttft=2s --slo tpot=300ms

test: $(VENV)/.dev check
	$(BIN)/benchlab engine fetch smollm2-135m
	$(FAST_TESTS) -n $(TEST_PROCESSES) --dist worksteal || \
		{ echo "once more, one at a time: what failed beside other tests" >&2; $(FAST_TESTS) --last-failed --last-failed-no-failures none; }

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m slow

bench: $(VENV)/.dev
	$(BIN)/python -m tests.benchmarks

lock: $(VENV)/.dev
	@{ sed -n '/^#/p' .ci/constraints.txt; $(BIN)/python -m pip freeze --exclude-editable --exclude benchlab \
		| grep -v '^#' | sed -E 's/^torch(==| @ ).*/torch==2.13.0/'; } > .ci/constraints.new
	mv .ci/constraints.new .ci/constraints.txt

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
