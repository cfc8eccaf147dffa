# `make help` says what there is. Everything happens in .venv; nothing needs root but `make test-deps`.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test test-all check types wheels static test-deps bench figures chaos eval train protos readme alerts render deploy descriptions

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

setup: $(VENV)/.laptop ## Make .venv and install what a laptop needs

$(VENV)/.laptop: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Name another: make setup PYTHON=python3.12")'
	@echo "Installing into $(VENV): about 210 MB to download, 620 MB on disk. This takes a minute or more."
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop]'
	@touch $@

$(VENV)/.dev: $(VENV)/.laptop
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[laptop,text,vision,audio,video,diffusion,remote,served,dev]'
	@touch $@

demo: $(VENV)/.laptop ## Answer a real request, keep its plan, run that over twenty pictures; no key, no GPU, no download
	$(PY) -m gateway.cli ask "Read the text in this image aloud and tell me whether it sounds happy" \
	  --file tests/data/sign.png --out out --save read-aloud
	$(PY) -m tests.data.signs out/signs
	rm -rf out/spoken
	$(PY) -m gateway.cli batch read-aloud --folder out/signs --out out/spoken || [ $$? -eq 1 ] # one sign is broken

up: $(VENV)/.laptop ## Run the whole house until Ctrl-C
	$(PY) -m gateway.cli up

PYTEST := $(PY) -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder --durations 20

test: setup check ## Checks and tests in at most ten minutes; what needs a missing program is skipped and listed
	$(PYTEST) -m "not slow"

test-all: setup check ## Every check and test, containers and long series included, in at most thirty minutes
	$(PYTEST)

check: $(VENV)/.dev ## Fresh stubs, lint, types, import rules, wheels; no tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types wheels static

types:
	$(PY) -m mypy

wheels: $(VENV)/.resolved

static:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
	$(PY) -m protos.generate --check
	$(PY) -m protos.released --check

$(VENV)/.resolved: pyproject.toml tests/resolution.py | $(VENV)/.dev
	$(PY) -m tests.resolution
	@touch $@

test-deps: ## Install the programs that tests need beyond Python (Debian; root, or sudo)
	$(SUDO) sh tests/support/install_programs.sh

$(VENV)/.bench: $(VENV)/.dev
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[bench,peers]'
	@touch $@

bench: $(VENV)/.bench ## Measure, beside the peers; tables, out/bench.json, out/charts; 50 minutes; SECTION=hops,host: only these
	$(PY) -m tests.bench $(SECTION)

figures: $(VENV)/.bench ## README's figures and charts, from what make bench has measured, and k8s/README.md's arithmetic
	$(PY) -m tests.bench.figures
	$(PY) -m tests.readme

chaos: $(VENV)/.dev ## Kill, pause and confuse the orchestrators under 1,000 runs on each database; minutes; out/chaos.json
	$(PY) -m tests.chaos

eval: $(VENV)/.dev ## How good the plans are: TaskBench cross-validated, and our own requests; minutes; out/eval.json
	$(PY) -m tests.eval

train: $(VENV)/.dev ## Learn the embedded planner's weights anew; a minute or two
	$(PY) -m tests.eval.training

protos: $(VENV)/.dev ## Make the stubs anew
	$(PY) -m protos.generate

include docker/images.mk

OVERLAY ?= local
NAMESPACE ?= hugginggpt
DESCRIPTIONS := out/descriptions
overlay = $(if $(wildcard k8s/overlays/$(OVERLAY)/kustomization.yaml),k8s/overlays/$(OVERLAY),$(error There is no overlay \
	$(OVERLAY); there are: $(notdir $(wildcard k8s/overlays/*))))
NO_ENGINE := Experts that may sleep are described by their images, which run on this machine for a moment: \
	start Docker, or install podman.
TELLING := {.metadata.labels.hugginggpt\.dev/sleepy}{" "}{.spec.template.spec.containers[0].image}{" "}\
	{.spec.template.spec.containers[0].env[?(@.name=="EXPERT_ALLOWED")].value}{"\n"}

render: ## What OVERLAY applies to a cluster, as YAML; k8s/README.md has the overlays
	@kubectl kustomize $(overlay)

deploy: descriptions ## Apply OVERLAY to the cluster that kubectl speaks to, and wait until it answers
	kubectl delete jobs --namespace $(NAMESPACE) --selector app.kubernetes.io/component=prefetch --ignore-not-found # a Job's image cannot be changed
	kubectl apply --server-side --force-conflicts --kustomize $(overlay)
	kubectl create configmap expert-descriptions --namespace $(NAMESPACE) --from-file $(DESCRIPTIONS) --dry-run=client --output yaml \
	  | kubectl apply --server-side --force-conflicts --filename -
	kubectl wait --namespace $(NAMESPACE) --for=condition=Available --timeout=15m deployment \
	  --selector 'app.kubernetes.io/component in (door, stage)'

descriptions: # For the selector, of experts that sleep though it has never met them: each image tells of its own
	@rm -rf $(DESCRIPTIONS) && mkdir -p $(DESCRIPTIONS)
	@kubectl kustomize $(overlay) | kubectl label --local --filename - told=yes --output jsonpath='$(TELLING)' | grep '^[a-z]' | \
	while read -r expert image allowed; do \
	  command -v $(firstword $(run_with_$(ENGINE))) > /dev/null || { echo '$(NO_ENGINE)' >&2; exit 1; }; \
	  $(run_with_$(ENGINE)) --rm --network none --env EXPERT_MAY_SLEEP=true --env EXPERT_ALLOWED="$$allowed" \
	    "$$image" experts.$$expert --describe < /dev/null > $(DESCRIPTIONS)/$$expert.json || { rm -r $(DESCRIPTIONS); exit 1; }; done

ALERTS := k8s/components/observability/prometheus/rules.yaml
RULE := \# Made by `make alerts` of $(ALERTS).\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: hugginggpt\nspec:\n

alerts: ## Bring the alert rules to Prometheus' operator, too
	{ printf '$(RULE)'; sed -n '/^groups:/,$$ s/^/  /p' $(ALERTS); } > k8s/components/prometheus/rules.yaml

readme: $(VENV)/.dev ## Make the tables of README.md and k8s/README.md anew
	$(PY) -m tests.readme
