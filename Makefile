# `make study`, `make test` and `make check` need no other set-up: they create .venv first.
PYTHON ?= python3
# A build of torch other than the package index's default: what to give `pip install`, such as "torch --index-url URL".
TORCH ?=
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: study test check bench lint types docs schema clean

study: .venv/study-ready
	$(BIN)/ablate study spaces/simplify_block.yaml

test: .venv/ready
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10

check: lint types docs test

bench: .venv/ready
	$(BIN)/python -m benchmarks

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

# Warnings are errors; nothing is fetched.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

schema: .venv/ready
	$(BIN)/python -m ablate.spec.schema > spaces/space.schema.json

clean:
	rm -rf .venv build dist

# What a study needs, and no more; --no-compile, because compiling all of torch takes longer than unpacking it.
.venv/study-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(if $(TORCH),$(INSTALL) --no-compile --no-deps $(TORCH))
	$(INSTALL) --no-compile --editable .
	touch $@

# All extras and the tools of development, into the same environment.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(if $(TORCH),$(INSTALL) --no-deps $(TORCH))
	$(INSTALL) --editable '.[all,dev,docs]'
	touch .venv/study-ready $@
