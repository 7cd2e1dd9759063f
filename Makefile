# `make study`, `make test` and `make check` need no other set-up: they create .venv first.
PYTHON ?= python3
# A build of torch other than the package index's default: what to give `uv pip install`, such as "torch --index-url URL".
TORCH ?=
BIN := .venv/bin
, := ,
# uv installs: the one on PATH, or one that pip puts into .venv. Without a GPU it takes the CPU build of torch from PyTorch's index,
# and the package index's default build where that index cannot be reached.
UV := VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet --constraint constraints.txt
INSTALL = $(if $(TORCH),$(UV) $(1),UV_HTTP_RETRIES=0 $(UV) --torch-backend auto $(1) 2>/dev/null || $(UV) $(1))
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif

# The folders that need neither a browser, a cluster nor minutes; `make test-lowest` and `make test-newest` run them.
FAST := $(addprefix tests/,spec stats store designs planning analysis render tasks nn decoding downstream trackers)
# DEV=1 runs them in Python's development mode, which warns of more; processes that tests start are not in it.
PROCESSES := $(if $(DEV),--tx '3*popen//python=$(BIN)/python -X dev',--numprocesses auto)
RUN_TESTS := $(PROCESSES) --dist loadfile --no-loadscope-reorder

# Says in one sentence which interpreters work, before anything is made. Old interpreters read this too.
LOWEST := $(shell sed -n 's/^requires-python = ">=\(.*\)"/\1/p' pyproject.toml)
ANOTHER := name another, such as: make $(or $(firstword $(MAKECMDGOALS)),study) PYTHON=python3.13
define CHECK
import platform, sys
found = "ablate needs Python $(LOWEST) or later, and $(PYTHON) is Python " + platform.python_version()
if sys.version_info < tuple(map(int, "$(LOWEST)".split("."))):
    sys.exit(found + "; $(ANOTHER), or python from `uv python find 3.13`")
try:
    import ensurepip, venv
except ImportError:
    sys.exit(found + " without the module venv; install it (Debian, Ubuntu: apt install python3-venv), or $(ANOTHER)")
endef
export CHECK
CHECK_PYTHON = @$(PYTHON) -c "$$CHECK" || { test $$? -eq 1 || echo "ablate needs Python $(LOWEST) or later; $(ANOTHER)" >&2; exit 1; }

.PHONY: study test test-lowest test-newest check bench lint types docs schema clean

study: .venv/study-ready
	$(BIN)/ablate study spaces/simplify_block.yaml

test: .venv/ready
	$(BIN)/pytest $(RUN_TESTS) --durations 10

# The lowest versions that pyproject.toml allows, and the newest that there are; each into an environment of its own.
test-lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest $(RUN_TESTS) $(FAST)

test-newest: .venv-newest/ready
	.venv-newest/bin/python -m pytest $(RUN_TESTS) $(FAST)

check: lint types docs test

bench: .venv/ready
	$(BIN)/python -m benchmarks

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# As on Linux, then as on macOS and Windows, which see other parts of the standard library.
types: .venv/ready
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin
	$(BIN)/mypy --platform win32 ablate dashboard

# Warnings are errors; nothing is fetched.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# What the first line of each shipped space names, for editors; a wheel that is built afterwards carries it.
schema: .venv/ready
	$(BIN)/ablate schema > spaces/space.schema.json

clean:
	rm -rf .venv .venv-lowest .venv-newest build dist

.venv/bin/uv:
	$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv
	$(if $(shell command -v uv),ln -s "$$(command -v uv)" $@,$(BIN)/python -m pip install --quiet uv)
	$(if $(TORCH),$(UV) --no-deps $(TORCH))

# What a study needs, and no more.
.venv/study-ready: pyproject.toml constraints.txt | .venv/bin/uv
	$(call INSTALL,--editable .)
	touch $@

# All extras and the tools of development, into the same environment.
.venv/ready: pyproject.toml constraints.txt | .venv/bin/uv
	$(call INSTALL,--editable '.[all$(,)dev$(,)docs]')
	touch .venv/study-ready $@

# The tools of the tests come second, so that they cannot raise a version of what is tested.
.venv-lowest/ready .venv-newest/ready: pyproject.toml
	$(CHECK_PYTHON)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet uv
	VIRTUAL_ENV=$(@D) $(@D)/bin/uv pip install --resolution $(if $(findstring lowest,$@),lowest-direct,highest) --editable '.[all]'
	VIRTUAL_ENV=$(@D) $(@D)/bin/uv pip install --editable '.[dev]'
	touch $@
