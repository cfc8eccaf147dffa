"""What the gateway can be told."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode, SettingsConfigDict

from gateway.auth.settings import AccessSettings
from services.common.errors import FailedPrecondition
from services.common.settings import BalancedSettings, NonEmpty, StoreSettings, home
from services.common.tls import Certificate


def _words(text: object) -> object:
    return tuple(word for word in text.replace(",", " ").split()) if isinstance(text, str) else text


class Settings(BalancedSettings, StoreSettings, AccessSettings):
    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    http_listen: str = "127.0.0.1:8080"
    """host:port of the HTTP server; port 0 takes any free one."""
    health_listen: str = Field("", validation_alias=AliasChoices("GATEWAY_HEALTH_LISTEN", "HEALTH_LISTEN"))
    """As everywhere; by its own name where services share a process with it."""
    certificate: Annotated[Path | None, NonEmpty] = None
    """PEM file of the certificate both doors show to the world, with its chain; None: no TLS there."""
    certificate_key: Annotated[Path | None, NonEmpty] = None
    """PEM file of its key."""
    tls_in_front: bool = False
    """A proxy before the HTTP door ends TLS and keeps the Host: addresses in answers then begin with https."""
    orchestrator: Annotated[str, NonEmpty] = "dns:///orchestrator:50051"
    """Where runs are kept."""
    selector: Annotated[str, NonEmpty] = "dns:///selector:50051"
    """Where the catalogue is kept."""
    database: Annotated[str, BeforeValidator(str), NonEmpty] = Field(
        default_factory=lambda: str(home() / "gateway.sqlite"), repr=False
    )
    """Where keys, files and limits are kept: a SQLite file's path, or postgresql://user:password@host:port/name."""
    files_bytes: int = Field(100_000_000, gt=0)
    """Most bytes of files sent with one request."""
    upload_bytes: int = Field(2_000_000_000, gt=0)
    """Most bytes of a file sent on its own."""
    presign: bool = True
    """Whether clients can reach the object store, if there is one, and are sent there for the bytes of artifacts."""
    fetch_urls: bool = True
    """Whether files may be given as URLs, which this server then asks for; if not, webhooks reach named hosts alone."""
    fetch_allow: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """Hosts (with or without a port) and networks, by comma, that belong to the house: they may be asked beside public
    addresses, and are asked under the data policy local, too, if a URL names them."""
    mcp_tasks: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = ()
    """Kinds of task that agents see as tools of their own, by comma; the others they find with the tool tasks."""
    data_policy: Literal["local", "open"] = "open"
    """Whether bytes may go where the operator has configured, when a request does not say."""

    @property
    def shown(self) -> Certificate | None:
        """What both doors show.

        Raises:
            FailedPrecondition: CERTIFICATE, one of its files is not named.
        """
        match self.certificate, self.certificate_key:
            case (None, None):
                return None
            case (Path() as chain, Path() as key):
                return Certificate(chain, key)
        raise FailedPrecondition(
            "TLS needs a certificate and its key",
            reason="CERTIFICATE",
            remedy="set GATEWAY_CERTIFICATE and GATEWAY_CERTIFICATE_KEY, or neither",
        )
