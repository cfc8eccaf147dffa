# `make help` lists the targets. Everything is installed into .venv; only `make test-deps` needs root.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
GENERATOR := $(VENV)/openapi-python-client
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-all check types wheels static check-web test-deps bench figures chaos eval train verify-models protos openapi readme alerts render deploy descriptions

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-13s %s\n", $$1, $$2 }'

setup: $(VENV)/.laptop ## Create .venv and install HuggingGPT for one machine

$(VENV)/.laptop: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is required; this is " + sys.version.split()[0] + ". Choose another: make setup PYTHON=python3.12")'
	@echo "Installing into $(VENV): downloads about 210 MB, uses 620 MB of disk, takes a minute or more."
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop]'
	@touch $@

$(VENV)/.dev: $(VENV)/.laptop
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop,text,vision,audio,video,diffusion,remote,served,dev]'
	@touch $@

demo: $(VENV)/.laptop ## Answer a request, save its plan, run it over twenty images; no key, no GPU, no download
	$(PY) -m gateway.cli ask "Read the text in this image aloud and tell me whether it sounds happy" \
	  --file tests/data/sign.png --out out --save read-aloud
	$(PY) -m tests.data.signs out/signs
	rm -rf out/spoken
	$(PY) -m gateway.cli batch read-aloud --folder out/signs --out out/spoken || [ $$? -eq 1 ] # one image is corrupted on purpose

up: $(VENV)/.laptop ## Run all services on this machine until Ctrl-C
	$(PY) -m gateway.cli up

PYTEST := $(PY) -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder --durations 20

# In CI a failed test runs once more; the summary lists it.
RERUNS := $(if $(CI),--reruns 1 -rfER)

test: setup check ## Run checks and fast tests, at most ten minutes; tests without their program are skipped and listed
	$(PYTEST) -m "not slow"

test-all: setup check ## Run all checks and tests, containers included, at most thirty minutes
	$(PYTEST) $(RERUNS)

check: $(VENV)/.dev ## Check lint, types, import rules, generated stubs and wheels; no tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types wheels static

types:
	$(PY) -m mypy

wheels: $(VENV)/.resolved

static:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	$(PY) -m protos.generate --check

$(VENV)/.resolved: pyproject.toml tests/resolution.py | $(VENV)/.dev
	$(PY) -m tests.resolution
	@touch $@

WEB := gateway/web

check-web: $(VENV)/.dev $(WEB)/node_modules ## Check the web page: ESLint, types, unit tests in node, axe; `make test-all` includes it
	npm --prefix $(WEB) run check
	$(PY) -m pytest tests/system/test_page_accessibility.py

$(WEB)/node_modules: $(WEB)/package-lock.json
	npm ci --prefix $(WEB)
	@touch $@

test-deps: ## Install the programs that tests need in addition to Python (Debian; root or sudo)
	$(SUDO) sh tests/support/install_programs.sh
	$(MAKE) --no-print-directory $(WEB)/node_modules $(GENERATOR)

# Generates a client from gateway/openapi.json for a test. In an environment of its own, because it needs an older typer;
# pinned, because releases differ in what they omit.
$(GENERATOR):
	$(PYTHON) -m venv $(GENERATOR)
	$(GENERATOR)/bin/pip install --quiet --disable-pip-version-check openapi-python-client==0.29.1

$(VENV)/.bench: $(VENV)/.dev
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[bench,peers]'
	@touch $@

bench: $(VENV)/.bench ## Run benchmarks, an hour; writes tables, out/bench.json, out/charts; SECTION=hops,host for some
	$(PY) -m tests.bench $(SECTION)

figures: $(VENV)/.bench ## Update figures, charts and capacity tables in tests/bench/README.md from out/bench.json
	$(PY) -m tests.bench.figures
	$(PY) -m tests.readme

chaos: $(VENV)/.dev ## Inject faults into orchestrators during 1,000 runs on each database; minutes; out/chaos.json
	$(PY) -m tests.chaos

eval: $(VENV)/.dev ## Measure plans (TaskBench, own requests) and answers to requests with files; minutes; out/eval*.json
	$(PY) -m tests.eval
	$(PY) -m tests.eval.answers

train: $(VENV)/.dev ## Train the embedded planner's weights; one or two minutes
	$(PY) -m tests.eval.training

verify-models: $(VENV)/.dev ## Run models with their real weights (downloads them) and update their cards; EXPERT=vision, MODEL=id for some
	$(PY) -m tests.verification $(if $(EXPERT),--expert '$(EXPERT)') $(if $(MODEL),--model '$(MODEL)')

protos: $(VENV)/.dev ## Generate the protobuf stubs
	$(PY) -m protos.generate

openapi: $(VENV)/.dev ## Generate gateway/openapi.json from the HTTP routes
	$(PY) -m tests.openapi

include docker/images.mk

OVERLAY ?= local
NAMESPACE ?= hugginggpt
overlay = $(if $(wildcard k8s/overlays/$(OVERLAY)/kustomization.yaml),k8s/overlays/$(OVERLAY),$(error no overlay \
	$(OVERLAY); choose from: $(notdir $(wildcard k8s/overlays/*))))

render: ## Print the manifests of OVERLAY as YAML; k8s/README.md lists the overlays
	@kubectl kustomize $(overlay)

deploy: ## Apply OVERLAY to the current kubectl context, and wait until the services are available
	kubectl apply --server-side --force-conflicts --kustomize $(overlay)
	kubectl wait --namespace $(NAMESPACE) --for=condition=Available --timeout=15m deployment \
	  --selector 'app.kubernetes.io/component in (gateway, service)'

descriptions: $(if $(IMAGE),,$(VENV)/.dev) ## Describe experts that may scale to zero, for their ConfigMap; or that in IMAGE, with ARGS, to FILE
	$(if $(IMAGE),$(run_with_$(ENGINE)) --rm --network none --env EXPERT_SCALES_TO_ZERO=true --env EXPERT_ALLOWED $(IMAGE) $(ARGS) --describe > $(FILE),\
	  $(foreach name,$(TORCHED),EXPERT_SCALES_TO_ZERO=true $(PY) -m experts.$(name) --describe > k8s/components/$(name)/keda/$(name).json &&) true)

ALERTS := k8s/components/observability/prometheus/rules.yaml
RULE := \# Generated by `make alerts` from $(ALERTS).\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: hugginggpt\nspec:\n

alerts: ## Copy the alert rules into the PrometheusRule for the Prometheus operator
	{ printf '$(RULE)'; sed -n '/^groups:/,$$ s/^/  /p' $(ALERTS); } > k8s/components/prometheus/rules.yaml

readme: $(VENV)/.dev ## Update the generated tables of the README files
	$(PY) -m tests.readme
