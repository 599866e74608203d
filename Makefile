# Every target sets up .venv by itself; nothing else is needed but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RUNS   := $(VENV)/.runs
REPORTS := $(VENV)/.reports
# What an installation leaves here would hide new commands from programs that run in this folder, and
# make pytest treat every module as a part of a plugin.
FORGET := rm -rf *.egg-info
BUILT  := pyproject.toml setup.py $(wildcard */_*.c */*/_*.c */*/*.h)
# Processes that run tests: two more than there are processors, because many tests wait; up to 6.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + min(4, os.cpu_count() or 1))')
# Tests start hundreds of processes, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up test lint bench report clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

up: $(RUNS) ## two web domains, a fabric between them, and a page to see it
	@$(BIN)/psph up $(ARGS)

test: $(READY) ## run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(READY) ## formatting, types and the import table
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## run every benchmark, as one JSON list
	$(BIN)/psph bench --json

report: $(REPORTS) ## what crossing domains costs: make report TRACES=DIR OUT=DIR
	@$(BIN)/psph report --traces '$(TRACES)' --out '$(or $(OUT),out/report)' $(ARGS)

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Rebuilt only when what is installed changes. The editable install makes an edit
# of the sources visible at once; entry points and C sources need a new one.
$(READY): $(BUILT) | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(FORGET)
	@touch $@ $(RUNS) $(REPORTS)

# What running needs, and nothing to develop with.
$(RUNS): $(BUILT) | $(BIN)/pip
	@echo "installing psph into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(FORGET)
	@touch $@

# The same with Spark; Java has to be there.
$(REPORTS): $(BUILT) | $(BIN)/pip
	@echo "installing psph with Spark into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[spark]'
	@$(FORGET)
	@touch $@ $(RUNS)

# Its last step is pip: one that was interrupted, or had no pip to give, is made again.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "psph needs Python 3.11 or newer; set PYTHON=/path/to/it" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
