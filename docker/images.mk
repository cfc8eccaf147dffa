# Targets that build container images; see docker/README.md.

EXPERTS := lite text vision audio video diffusion remote served
TORCHED := text vision audio video diffusion
# Experts in the image for bulk jobs; a change needs `make lock-bulk` with the same value.
BULK_EXPERTS ?= lite text vision audio
ALL_IMAGES := core $(EXPERTS:%=expert-%) bulk
IMAGES ?= $(filter-out bulk,$(ALL_IMAGES))
$(foreach name,$(filter-out $(ALL_IMAGES),$(IMAGES)),$(error no image $(name); choose from: $(ALL_IMAGES)))
TORCH ?= cpu
BASE ?= docker.io/library/python:3.11-slim-bookworm
ENGINE ?= $(shell docker ps >/dev/null 2>&1 && echo docker || echo buildah)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

experts_of = $(if $(filter bulk,$(1)),bulk $(BULK_EXPERTS),$(1:expert-%=%))
torch_of = $(if $(filter $(TORCHED),$(call experts_of,$(1))),$(TORCH),none)
image_of = hugginggpt/$(1):$(VERSION)$(if $(filter cuda,$(call torch_of,$(1))),-cuda)

# Bundled libraries under other licences: espeak-ng in lite, x264 in PyAV.
LICENSE_lite := GPL-3.0-or-later
LICENSE_audio := GPL-2.0-or-later
LICENSE_video := GPL-2.0-or-later
licenses_of = $(strip Apache-2.0 $(foreach license,$(sort $(foreach name,$(call experts_of,$(1)),$(LICENSE_$(name)))),AND $(license)))

# What CUDA 13 needs of a node, as labels of GPU images: driver version and compute capability, at least.
GPU_LABELS := --label dev.hugginggpt.nvidia-driver=580 --label dev.hugginggpt.compute-capability=7.5

# pip settings of this shell become build arguments. Local files and folders among them are mounted, with buildah only.
PIP_SETTINGS := $(foreach name,PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_CERT,$(if $($(name)),--build-arg $(name)))
PIP_VOLUMES := $(foreach path,$(wildcard $(PIP_FIND_LINKS) $(PIP_CERT)),--volume $(path):$(path):ro)
build_with_docker = docker build
build_with_buildah = buildah bud --isolation chroot --format docker --layers $(PIP_VOLUMES)
build = $(build_with_$(ENGINE)) $(PIP_SETTINGS) --build-arg BASE=$(BASE) --build-arg VERSION=$(VERSION) \
  --build-arg REVISION=$(shell git rev-parse HEAD)
run_with_docker = docker run
run_with_buildah = podman run --no-healthcheck

.PHONY: images push $(ALL_IMAGES) lock $(EXPERTS:%=lock-%) lock-bulk sbom

images: $(IMAGES) ## Build all images but bulk, or IMAGES="core expert-lite"; TORCH=cuda builds for GPUs

push: ## Push all images, or IMAGES, to REGISTRY, after make images with the same IMAGES and TORCH
	$(if $(REGISTRY),,$(error push needs REGISTRY=registry.example.org))
	$(foreach name,$(IMAGES),$(ENGINE) tag $(call image_of,$(name)) $(REGISTRY)/$(call image_of,$(name)) && \
	  $(ENGINE) push $(REGISTRY)/$(call image_of,$(name)) &&) true

core:
	$(build) --file docker/core.Dockerfile --tag $(call image_of,core) .

$(EXPERTS:%=expert-%) bulk:
	$(build) $(if $(filter cuda,$(call torch_of,$@)),$(GPU_LABELS)) \
	  --build-arg EXPERTS="$(call experts_of,$@)" --build-arg LOCK=$@ --build-arg TORCH=$(call torch_of,$@) \
	  --build-arg LICENSES="$(call licenses_of,$@)" --file docker/expert.Dockerfile --tag $(call image_of,$@) .

sbom: ## Write the CycloneDX SBOM of each image to out/sbom
	mkdir -p out/sbom
	$(foreach name,$(IMAGES),$(run_with_$(ENGINE)) --rm --network none --entrypoint cat $(call image_of,$(name)) /opt/venv/sbom.cdx.json \
	  > out/sbom/$(name).cdx.json &&) true

# Existing locks keep their versions; delete them to upgrade. torch has its own locks: its CPU and CUDA builds differ.
resolve = $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
# docopt, of which there is no wheel, is for the command num2words only.
resolve_without_torch = printf 'torch\ndocopt\n' | $(resolve) --only-binary :all: --extra telemetry --constraints docker/torch-cpu.lock --excludes -
CPU_WHEELS := $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu)
lock-lite: EXTRAS := --extra speech --extra llm # the image also runs the expert llm

lock: $(VENV)/.dev ## Write docker/*.lock, the pinned packages of images; run after changing pyproject.toml
	printf 'setuptools>=80\ncyclonedx-bom>=7,<8\n' | $(resolve) --output-file docker/tools.lock -
	$(resolve) --extra gateway --extra planner --extra selector --extra llm --extra postgres --extra telemetry \
	  --output-file docker/core.lock pyproject.toml
	sed -n 's/^ *"\(torch>=.*\)",/\1/p' pyproject.toml | $(resolve) --output-file docker/torch-cuda.lock -
	sed -n 's/^\(torch==[0-9.]*\).*/\1+cpu/p' docker/torch-cuda.lock | $(resolve) $(CPU_WHEELS) --output-file docker/torch-cpu.lock -
	$(MAKE) --no-print-directory $(EXPERTS:%=lock-%)
	$(MAKE) --no-print-directory lock-bulk

$(EXPERTS:%=lock-%): lock-%:
	$(resolve_without_torch) --extra $* $(EXTRAS) --output-file docker/expert-$*.lock pyproject.toml

# Versions are those of the images of the single experts, unless they exclude each other.
lock-bulk: EXTRAS := --extra speech --extra llm
lock-bulk:
	cat $(BULK_EXPERTS:%=docker/expert-%.lock) $(wildcard docker/bulk.lock) > docker/preferred.lock
	mv docker/preferred.lock docker/bulk.lock
	$(resolve_without_torch) $(BULK_EXPERTS:%=--extra %) --extra bulk-ray $(EXTRAS) --output-file docker/bulk.lock pyproject.toml
