"""Settings: declared, typed, frozen, read once by __main__."""

import os
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from services.common.errors import FailedPrecondition, InvalidRequest
from services.common.tls import Certificate, Identity

S = TypeVar("S", bound=BaseSettings)
T = TypeVar("T")

_REMEDY = "correct the environment; the settings.py of its room says what each variable means"


def _given(value: T) -> T:
    if not str(value).strip():
        raise ValueError("is empty: is a secret or a variable missing? Unset it for the default, if there is one")
    return value


Given = BeforeValidator(_given)
"""Of what cannot be empty: a secret that is not there must not pass for a default."""


def home() -> Path:
    """Where the house keeps what it must not lose: HUGGINGGPT_HOME, else ~/.hugginggpt."""
    return Path(os.environ.get("HUGGINGGPT_HOME") or Path.home() / ".hugginggpt").resolve()


class StoreSettings(BaseSettings):
    """For those who open the artifact store."""

    artifacts_url: Annotated[str, Given] = Field(
        default_factory=lambda: (home() / "artifacts").as_uri(),  # noqa: PLW0108  # home() is read when asked
        validation_alias=AliasChoices("ARTIFACTS_URL"),
    )
    """file:///folder or s3://bucket/prefix."""


class ServiceSettings(BaseSettings):
    """What every process can be told."""

    model_config = SettingsConfigDict(frozen=True, use_attribute_docstrings=True, populate_by_name=True, extra="forbid")

    listen: Annotated[str, Given] = "127.0.0.1:50051"
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
    tls_certificate: Annotated[Path | None, Given] = Field(None, validation_alias=AliasChoices("TLS_CERTIFICATE"))
    """PEM file of the certificate this process shows to other services, and asks of them too; None: no TLS."""
    tls_key: Annotated[Path | None, Given] = Field(None, validation_alias=AliasChoices("TLS_KEY"))
    """PEM file of its key."""
    tls_authority: Annotated[Path | None, Given] = Field(None, validation_alias=AliasChoices("TLS_AUTHORITY"))
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


def from_environment(settings: type[S]) -> S:
    """The settings, as the environment has them.

    Raises:
        InvalidRequest: something in it is wrong; told without what stands there, since that may be secret.
    """
    try:
        return settings()
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "") if error.title == settings.__name__ else f"{error.title}."
        raise refused(error, prefix) from None
    except SettingsError as error:
        raise InvalidRequest(str(error), remedy=_REMEDY) from None


def refused(error: ValidationError, prefix: str = "") -> InvalidRequest:
    """What is wrong with settings, in one line.

    Args:
        error: as they raised it.
        prefix: of the variables that belong to them alone.
    """
    complaints = [f"{_variable(each['loc'], prefix)}{each['msg']}" for each in error.errors(include_input=False)]
    return InvalidRequest("; ".join(complaints).replace("Value error, ", ""), remedy=_REMEDY)


def _variable(location: tuple[int | str, ...], prefix: str) -> str:
    if not location:
        return ""
    name = str(location[0])
    return f"{name if name.isupper() else prefix + name.upper()}: "
