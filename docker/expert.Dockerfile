# One or several experts, selected by the build argument EXPERTS. docker/README.md: how to build and run them.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

# Layer that all experts with the same build argument TORCH (none, cpu or cuda) share.
FROM ${BASE} AS torch
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
ARG TORCH=none
RUN python -m venv --without-pip /opt/venv
COPY docker/torch-cpu.lock docker/torch-cuda.lock /opt/locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    [ "$TORCH" = none ] || pip --python /opt/venv/bin/python --disable-pip-version-check install --root-user-action ignore \
    --require-hashes --only-binary :all: -r /opt/locks/torch-$TORCH.lock

FROM ${BASE} AS code
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/tools
COPY docker/tools.lock /locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/tools/bin/python install --no-compile --require-hashes --only-binary :all: -r /locks/tools.lock
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY services/__init__.py services/
COPY services/common services/common
COPY services/llm services/llm
COPY experts experts
ARG EXPERTS
RUN cd experts && ls -d $EXPERTS && for each in *; do \
    case " __init__.py endpoints host llm torch_host $EXPERTS " in *" $each "*) ;; *) rm -r "$each" ;; esac; done
RUN pip --python /opt/tools/bin/python install --no-deps --no-index --no-build-isolation --target /app . \
    && rm -r /app/bin

FROM torch
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
ARG EXPERTS
ARG LOCK=expert-${EXPERTS}
COPY docker/${LOCK}.lock /opt/locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/venv/bin/python --disable-pip-version-check install --root-user-action ignore \
    --no-deps --require-hashes --only-binary :all: -r /opt/locks/$LOCK.lock
RUN --mount=type=bind,from=code,source=/opt/tools,target=/opt/tools \
    /opt/tools/bin/python -m cyclonedx_py environment --output-reproducible --output-file /opt/venv/sbom.cdx.json /opt/venv
RUN useradd --uid 65532 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin hugginggpt \
    && install -d -o 65532 -g 65532 /data /data/artifacts /models
# GKE mounts the NVIDIA driver at /usr/local/nvidia, elsewhere the container runtime adds it to the system's paths.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    HUGGINGGPT_HOME=/data \
    HF_HOME=/models \
    HF_HUB_DISABLE_TELEMETRY=1 \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    EXPERT_LISTEN=0.0.0.0:50051 \
    HEALTH_LISTEN=0.0.0.0:50052 \
    METRICS_LISTEN=0.0.0.0:9464
COPY --from=code /app /app
WORKDIR /app
USER 65532:65532
EXPOSE 50051 50052 9464
HEALTHCHECK --interval=15s --timeout=5s --start-period=600s \
    CMD ["python", "-m", "services.common.probe", "127.0.0.1:50052", "readiness"]
ENTRYPOINT ["python", "-m"]
ARG VERSION=0
ARG REVISION=unknown
ARG LICENSES=Apache-2.0
LABEL org.opencontainers.image.title="hugginggpt/${LOCK}" \
      org.opencontainers.image.description="Experts of HuggingGPT: ${EXPERTS}." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="${LICENSES}"
