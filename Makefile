# Every target sets itself up from a fresh clone: a virtual environment in .venv, torch, and this project with its build and dev extras.
#   make demo     build an example package and run it eagerly and from generated code
#   make test     the test suite
#   make generated  rebuild the committed example in generated/
#   make lint types imports cases
# PYTHON, VENV and TORCH may be set: make test PYTHON=python3.12 TORCH="torch>=2.11,<2.15"

PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
CASES  ?= ../shared/cases

.PHONY: setup demo generated test lint types imports check cases clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else f"Python 3.11 to 3.13 is needed, {sys.version} found; use make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[build,dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py

# The committed build of examples/signal. For every x86-64 machine; without the extension of one torch and CPython, so that it is small and portable.
generated: $(READY)
	cd examples/signal && $(abspath $(BIN))/python -m aotcompile.cli build spectra --out ../../generated \
		--target cpu --target cpu:x86-64-v3 --target cpu:x86-64-v4 --no-host

test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) tests

lint: $(READY)
	$(BIN)/ruff check aotcompile cli tests examples benchmarks

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

check: lint types imports

# The handed test programs, eager against compiled.
cases: $(READY)
	$(BIN)/python $(CASES)/harness.py $(CASES)/core $(CASES)/reports

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info examples/*/generated
	find aotcompile cli tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
