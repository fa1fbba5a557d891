# Two commands for a fresh machine: `make demo` makes a video with the embedded model, `make test` runs every check.
# Each creates .venv, installs what it needs and does its job; stamp files keep the set-up from being repeated.
# Settings: PYTHON (3.11 or later), TORCH_SPEC (what pip is asked for), ARGS (further arguments of the demo's run),
# WORKERS (processes of the test suite; tests of one file stay in one of them, because they share what they load).

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
WORKERS ?= 2
VENV := .venv
PIP := $(VENV)/bin/python -m pip
BIN := $(VENV)/bin

# The plain spec is the project's own; what it gets on Linux is a CUDA build of several gigabytes.
TORCH_PLAIN := torch>=2.11
# The version that everything was tested with. Where there is no GPU a CPU build of it is tried first, in this order:
#   1. 2.13.0+cpu from wherever pip is configured to look (a local wheel folder, a mirror);
#   2. 2.13.0+cpu from PyTorch's own index, for a machine with nothing configured (Linux, Windows);
#   3. 2.13.0 from the usual index: on macOS that is the CPU build already;
#   4. the plain spec, for a Python or system without that version.
TORCH_TESTED := torch==2.13.0
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: demo test clean

demo: $(VENV)/.demo-installed
	$(BIN)/python -m framework run $(ARGS)

test: $(VENV)/.test-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m bench all --quick

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; name it with: make PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch-installed: $(VENV)/.created
ifdef TORCH_SPEC
	$(PIP) install "$(TORCH_SPEC)"
else
	@if nvidia-smi >/dev/null 2>&1; then \
		set -x; $(PIP) install "$(TORCH_PLAIN)"; \
	else \
		set -x; \
		$(PIP) install "$(TORCH_TESTED)+cpu" \
		|| $(PIP) install --retries 1 --timeout 15 --index-url $(TORCH_CPU_INDEX) "$(TORCH_TESTED)+cpu" \
		|| $(PIP) install "$(TORCH_TESTED)" \
		|| $(PIP) install "$(TORCH_PLAIN)"; \
	fi
endif
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.torch-installed pyproject.toml
	$(PIP) install --editable ".[video]"
	@touch $@

$(VENV)/.test-installed: $(VENV)/.torch-installed pyproject.toml
	$(PIP) install --editable ".[video,test]"
	@touch $(VENV)/.demo-installed $@  # the demo's needs are among them

clean:
	rm -rf $(VENV)
