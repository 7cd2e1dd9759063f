# `make study` and `make test` are all the set-up there is; the rest are chores.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: study test bench lint types schema clean

study: .venv/ready
	$(BIN)/ablate study spaces/simplify_block.yaml

test: .venv/ready
	$(BIN)/pytest --numprocesses auto --dist loadfile

bench: .venv/ready
	$(BIN)/python -m benchmarks

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/mypy

schema: .venv/ready
	$(BIN)/ablate schema > spaces/space.schema.json

clean:
	rm -rf .venv build dist

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[data,dashboard,dev,postgres,ray]'
	touch .venv/ready
