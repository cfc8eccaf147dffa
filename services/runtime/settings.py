"""Settings: declared, typed, frozen, read once by __main__."""

import os
from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.runtime.errors import FailedPrecondition
from services.runtime.identity import Certificate, Identity


def home() -> Path:
    """Where the house keeps what it must not lose: HUGGINGGPT_HOME, else ~/.hugginggpt."""
    return Path(os.environ.get("HUGGINGGPT_HOME") or Path.home() / ".hugginggpt").resolve()


class StoreSettings(BaseSettings):
    """For those who open the artifact store."""

    artifacts_url: str = Field(
        default_factory=lambda: (home() / "artifacts").as_uri(),  # noqa: PLW0108  # home() is read when asked
        validation_alias=AliasChoices("ARTIFACTS_URL"),
    )
    """file:///folder or s3://bucket/prefix."""


class ServiceSettings(BaseSettings):
    """What every process can be told."""

    model_config = SettingsConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True, extra="forbid")

    listen: str = "127.0.0.1:50051"
    """host:port of the gRPC server; port 0 takes any free one."""
    drain_seconds: float = Field(10.0, ge=0, validation_alias=AliasChoices("DRAIN_SECONDS"))
    """How long calls under way may finish after SIGTERM."""
    log_level: str = Field("INFO", validation_alias=AliasChoices("LOG_LEVEL"))
    """DEBUG, INFO, WARNING or ERROR."""
    log_format: str = Field("json", pattern="^(json|pretty)$", validation_alias=AliasChoices("LOG_FORMAT"))
    """json for machines, pretty for people."""
    metrics_listen: str = Field("", validation_alias=AliasChoices("METRICS_LISTEN"))
    """host:port of GET /metrics for Prometheus; port 0 takes any free one; empty measures nothing."""
    health_listen: str = Field("", validation_alias=AliasChoices("HEALTH_LISTEN"))
    """host:port where only grpc.health.v1 is answered, and without TLS: probes know none; empty: nowhere."""
    tls_certificate: Path | None = Field(None, validation_alias=AliasChoices("TLS_CERTIFICATE"))
    """PEM file of the certificate this process shows to other services, and asks of them too; None: no TLS."""
    tls_key: Path | None = Field(None, validation_alias=AliasChoices("TLS_KEY"))
    """PEM file of its key."""
    tls_authority: Path | None = Field(None, validation_alias=AliasChoices("TLS_AUTHORITY"))
    """PEM file of the authority that signs the certificates of all services."""
    tls_name: str = Field("hugginggpt", validation_alias=AliasChoices("TLS_NAME"))
    """The DNS name that all these certificates carry."""
    traces_endpoint: str = Field("", validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_ENDPOINT"))
    """Where traces and metrics go, by OTLP over gRPC; empty sends nothing. The other OTEL_ variables mean what they
    always do."""

    @property
    def identity(self) -> Identity | None:
        """What the process shows to other services.

        Raises:
            FailedPrecondition: CERTIFICATE, one of its files is not named.
        """
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        match files:
            case (None, None, None):
                return None
            case (Path() as chain, Path() as key, Path() as authority):
                return Identity(Certificate(chain, key), authority, self.tls_name)
        raise FailedPrecondition(
            "TLS needs a certificate, its key and the authority",
            reason="CERTIFICATE",
            remedy="set TLS_CERTIFICATE, TLS_KEY and TLS_AUTHORITY, or none of them",
        )


class BalancedSettings(ServiceSettings):
    """For those whose clients balance over all addresses of a name."""

    connection_seconds: float = Field(0.0, ge=0, validation_alias=AliasChoices("CONNECTION_SECONDS"))
    """How long clients keep a connection before they look anew which servers there are; calls under way stay on it.
    0 is for ever: where addresses come and go, as in a cluster, new servers are then found only when old ones leave."""
