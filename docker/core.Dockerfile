# The gateway, the services that load no models, and the command line. docker/README.md: how to build and run it.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

# Third-party packages: this layer changes only with the lock files.
FROM ${BASE} AS packages
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv --without-pip /opt/venv && python -m venv --without-pip /opt/tools
COPY docker/core.lock docker/tools.lock /locks/
RUN --mount=type=cache,target=/root/.cache/pip \
    pip --python /opt/venv/bin/python install --no-compile --require-hashes --only-binary :all: -r /locks/core.lock \
    && pip --python /opt/tools/bin/python install --no-compile --require-hashes --only-binary :all: -r /locks/tools.lock
COPY docker/slim.py /docker/
RUN /opt/venv/bin/python /docker/slim.py /opt/venv/lib/python3*/site-packages
WORKDIR /source
RUN /opt/tools/bin/python -m cyclonedx_py environment --output-reproducible --output-file /opt/venv/sbom.cdx.json /opt/venv

FROM packages AS code
COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY services services
COPY gateway gateway
RUN pip --python /opt/tools/bin/python install --no-deps --no-index --no-build-isolation --target /app . \
    && sed -i '1s|.*|#!/opt/venv/bin/python|' /app/bin/hugginggpt

FROM ${BASE}
RUN useradd --uid 65532 --user-group --home-dir /data --no-create-home --shell /usr/sbin/nologin hugginggpt \
    && install -d -o 65532 -g 65532 /data /data/artifacts
ENV PATH=/app/bin:/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/data \
    HUGGINGGPT_HOME=/data \
    OPENBLAS_NUM_THREADS=1 \
    PLANNER_LISTEN=0.0.0.0:50051 \
    SELECTOR_LISTEN=0.0.0.0:50051 \
    ORCHESTRATOR_LISTEN=0.0.0.0:50051 \
    RESPONDER_LISTEN=0.0.0.0:50051 \
    GATEWAY_LISTEN=0.0.0.0:50051 \
    GATEWAY_HTTP_LISTEN=0.0.0.0:8080 \
    GATEWAY_AUTHENTICATION=keys \
    HEALTH_LISTEN=0.0.0.0:50052 \
    METRICS_LISTEN=0.0.0.0:9464
COPY --from=packages /opt/venv /opt/venv
COPY --from=code /app /app
WORKDIR /app
USER 65532:65532
EXPOSE 8080 50051 50052 9464
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-m", "services.common.probe", "127.0.0.1:50052", "readiness"]
ENTRYPOINT ["python", "-m"]
CMD ["gateway"]
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hugginggpt/core" \
      org.opencontainers.image.description="Gateway, planner, selector, orchestrator, responder and command line." \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
