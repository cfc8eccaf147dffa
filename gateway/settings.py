"""Settings of the gateway."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict

from gateway.auth.settings import AccessSettings
from services.common.database import DEFAULT_CONNECTIONS
from services.common.errors import FailedPrecondition
from services.common.settings import BalancedSettings, NonEmpty, StoreSettings, home
from services.common.tls import Certificate


def _words(text: object) -> object:
    return tuple(word for word in text.replace(",", " ").split()) if isinstance(text, str) else text


class Settings(BalancedSettings, StoreSettings, AccessSettings):
    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    http_listen: str = "127.0.0.1:8080"
    """host:port of the HTTP server; port 0 selects a free port."""
    health_listen: str = Field("", validation_alias=AliasChoices("GATEWAY_HEALTH_LISTEN", "HEALTH_LISTEN"))
    """host:port of the health service; the prefixed name is for services that share a process."""
    certificate: Annotated[Path | None, NonEmpty] = None
    """PEM file of the TLS certificate chain of the HTTP and gRPC servers; None: no TLS."""
    certificate_key: Annotated[Path | None, NonEmpty] = None
    """PEM file of the certificate's private key."""
    tls_in_front: bool = False
    """A proxy terminates TLS in front of the HTTP server and passes the Host header on: URLs in responses use https."""
    orchestrator: Annotated[str, NonEmpty] = "dns:///orchestrator:50051"
    """gRPC target of the orchestrator."""
    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """gRPC target of the selector."""
    database: Annotated[str, BeforeValidator(str), NonEmpty] = Field(
        default_factory=lambda: str(home() / "gateway.sqlite"), repr=False
    )
    """Database of keys, files and limits: path of a SQLite file, or postgresql://user:password@host:port/name."""
    database_connections: int = Field(DEFAULT_CONNECTIONS, ge=3, validation_alias=AliasChoices("DATABASE_CONNECTIONS"))
    """Connections of this process to PostgreSQL, at least three."""
    files_bytes: int = Field(100_000_000, gt=0)
    """Maximum total size of the files of one request, in bytes."""
    upload_bytes: int = Field(2_000_000_000, gt=0)
    """Maximum size of one uploaded file, in bytes."""
    presign: bool = True
    """Redirect clients to the object store for artifact content; requires that they can reach it."""
    fetch_urls: bool = True
    """Fetch inputs given as URLs; if not, webhooks are only sent to the hosts of fetch_allow."""
    fetch_allow: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """Hosts (with or without a port) and networks of the deployment, separated by commas: URLs may name them
    in addition to public addresses, also under the data policy local."""
    mcp_tasks: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """Task types offered to agents as MCP tools of their own, separated by commas; the tool tasks lists the others."""
    data_policy: Literal["local", "open"] = "open"
    """Data policy of requests that state none: local keeps all data in the deployment."""

    @property
    def shown(self) -> Certificate | None:
        """Certificate of both servers; None: no TLS.

        Raises:
            FailedPrecondition: CERTIFICATE, one of the two files is not set.
        """
        match self.certificate, self.certificate_key:
            case (None, None):
                return None
            case (Path() as chain, Path() as key):
                return Certificate(chain, key)
        raise FailedPrecondition(
            "TLS needs both a certificate and its private key",
            reason="CERTIFICATE",
            remedy="set GATEWAY_CERTIFICATE and GATEWAY_CERTIFICATE_KEY, or neither",
        )
