# `make help` says what there is. Everything happens in .venv; nothing needs root but `make test-deps`.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PROTOS := $(wildcard protos/hugginggpt/v1/*.proto)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-deps check resolution protos bench clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(VENV)/.laptop ## Make .venv and install what a laptop needs

$(VENV)/.laptop: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Name another: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop]'
	@touch $@

$(VENV)/.dev: $(VENV)/.laptop
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop,dev]'
	@touch $@

demo: $(VENV)/.laptop ## Answer a real request, with no key, no GPU and no download
	$(PY) -m gateway.cli ask "Read the text in this image aloud and tell me whether it sounds happy" \
	  --file tests/data/sign.png --out out

up: $(VENV)/.laptop ## Run the whole house until Ctrl-C
	$(PY) -m gateway.cli up

protos: $(VENV)/.dev ## Make the stubs anew
	$(PY) -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. --mypy_out=quiet:. --mypy_grpc_out=quiet:. \
	  --plugin=protoc-gen-mypy=$(VENV)/bin/protoc-gen-mypy \
	  --plugin=protoc-gen-mypy_grpc=$(VENV)/bin/protoc-gen-mypy_grpc $(PROTOS)
	@rm -f protos/hugginggpt/v1/types_pb2_grpc.py protos/hugginggpt/v1/types_pb2_grpc.pyi
