"""Settings from environment variables: typed, frozen, read once by __main__."""

import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from services.common.errors import FailedPrecondition, InvalidRequest
from services.common.tls import Certificate, TlsIdentity

S = TypeVar("S", bound=BaseSettings)
T = TypeVar("T")

_REMEDY = "correct the environment; the settings.py of the package documents each variable"


def _non_empty(value: T) -> T:
    if not str(value).strip():
        raise ValueError("is empty: is a secret or a variable missing? Unset it for the default, if there is one")
    return value


NonEmpty = BeforeValidator(_non_empty)
"""Rejects empty values, so that a missing secret is not taken for the default."""


def home() -> Path:
    """Folder of persistent data: HUGGINGGPT_HOME, or ~/.hugginggpt."""
    return Path(os.environ.get("HUGGINGGPT_HOME") or Path.home() / ".hugginggpt").resolve()


class StoreSettings(BaseSettings):
    """Settings of processes that use the artifact store."""

    artifacts_url: Annotated[str, NonEmpty] = Field(
        default_factory=lambda: (home() / "artifacts").as_uri(),  # noqa: PLW0108  # home() depends on the environment
        validation_alias=AliasChoices("ARTIFACTS_URL"),
    )
    """file:///folder or s3://bucket/prefix."""


class ServiceSettings(BaseSettings):
    """Settings of every process."""

    model_config = SettingsConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True, extra="forbid")

    listen: Annotated[str, NonEmpty] = "127.0.0.1:50051"
    """host:port of the gRPC server; port 0 takes any free one."""
    drain_seconds: float = Field(10.0, ge=0, validation_alias=AliasChoices("DRAIN_SECONDS"))
    """How long active calls may take to finish after SIGTERM."""
    log_level: str = Field("INFO", validation_alias=AliasChoices("LOG_LEVEL"))
    """DEBUG, INFO, WARNING or ERROR."""
    log_format: str = Field("json", pattern="^(json|pretty)$", validation_alias=AliasChoices("LOG_FORMAT"))
    """json for machines, pretty for terminals."""
    metrics_listen: str = Field("", validation_alias=AliasChoices("METRICS_LISTEN"))
    """host:port of GET /metrics for Prometheus; port 0 takes any free one; empty: metrics are not served."""
    health_listen: str = Field("", validation_alias=AliasChoices("HEALTH_LISTEN"))
    """host:port that serves only grpc.health.v1, without TLS because probes have no certificate; empty: none."""
    tls_certificate: Annotated[Path | None, NonEmpty] = Field(None, validation_alias=AliasChoices("TLS_CERTIFICATE"))
    """PEM file of the certificate for mutual TLS between services; None: no TLS."""
    tls_key: Annotated[Path | None, NonEmpty] = Field(None, validation_alias=AliasChoices("TLS_KEY"))
    """PEM file of its key."""
    tls_authority: Annotated[Path | None, NonEmpty] = Field(None, validation_alias=AliasChoices("TLS_AUTHORITY"))
    """PEM file of the authority that signs the certificates of all services."""
    tls_name: str = Field("hugginggpt", validation_alias=AliasChoices("TLS_NAME"))
    """DNS name that all these certificates contain."""
    traces_endpoint: str = Field("", validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_ENDPOINT"))
    """Collector of traces and metrics, by OTLP over gRPC; empty: none. The other OTEL_ variables have their standard
    meanings."""

    @property
    def identity(self) -> TlsIdentity | None:
        """The identity of the process for mutual TLS; None without TLS.

        Raises:
            FailedPrecondition: CERTIFICATE, only some of its files are set.
        """
        files = (self.tls_certificate, self.tls_key, self.tls_authority)
        match files:
            case (None, None, None):
                return None
            case (Path() as chain, Path() as key, Path() as authority):
                return TlsIdentity(Certificate(chain, key), authority, self.tls_name)
        raise FailedPrecondition(
            "TLS needs a certificate, its key and the authority",
            reason="CERTIFICATE",
            remedy="set TLS_CERTIFICATE, TLS_KEY and TLS_AUTHORITY, or none of them",
        )


class BalancedSettings(ServiceSettings):
    """Settings of servers whose clients balance their calls over all replicas."""

    connection_seconds: float = Field(0.0, ge=0, validation_alias=AliasChoices("CONNECTION_SECONDS"))
    """Maximum age of a connection, after which clients resolve the name again; active calls finish on it. With 0, for
    no maximum, clients find new replicas only when a connection breaks: set it where replicas come and go."""


def from_environment(settings: type[S]) -> S:
    """Reads settings from the environment.

    Raises:
        InvalidRequest: a variable is invalid; the message omits its value, which may be secret.
    """
    try:
        return settings()
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "") if error.title == settings.__name__ else f"{error.title}."
        raise invalid_settings(error, prefix) from None
    except SettingsError as error:
        raise InvalidRequest(str(error), remedy=_REMEDY) from None


def invalid_settings(error: ValidationError, prefix: str = "") -> InvalidRequest:
    """Turns a validation error of settings into one line.

    Args:
        error: raised by the settings class.
        prefix: of its environment variables.
    """
    problems = [f"{_variable(each['loc'], prefix)}{each['msg']}" for each in error.errors(include_input=False)]
    return InvalidRequest("; ".join(problems).replace("Value error, ", ""), remedy=_REMEDY)


def _variable(location: tuple[int | str, ...], prefix: str) -> str:
    if not location:
        return ""
    name = str(location[0])
    return f"{name if name.isupper() else prefix + name.upper()}: "
