"""PostgreSQL and an S3 API as containers, named as in the manifests."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import httpx

from tests.containers.container import Container
from tests.containers.engine import Engine, Network
from tests.containers.images import REPOSITORY, Builder
from tests.support.postgres import PASSWORD
from tests.support.s3 import FIRST_SECONDS

BUCKET = "hugginggpt"
S3_PORT = 8333
DATABASE = f"postgresql://postgres:{PASSWORD}@postgres:5432/postgres"
"""DSN within the container network."""

_FILE = Path(__file__).with_name("peers.Dockerfile")


@dataclass(frozen=True)
class Peers:
    """Third-party services on the container network."""

    postgres: Container
    s3: Container

    @property
    def environment(self) -> Mapping[str, str]:
        """Settings with which HuggingGPT's services use them."""
        return {
            "ORCHESTRATOR_JOURNAL": DATABASE,
            "GATEWAY_DATABASE": DATABASE,
            "GATEWAY_PRESIGN": "false",  # clients are not on this network
            "ARTIFACTS_URL": f"s3://{BUCKET}/artifacts",
            "AWS_ENDPOINT_URL": f"http://s3:{S3_PORT}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def query(self, statement: str) -> str:
        """Runs an SQL statement and returns the rows as plain text."""
        return self.postgres.execute("psql", "--tuples-only", "--no-align", f"--command={statement}", DATABASE)


def start(engine: Engine, builder: Builder, network: Network) -> Peers:
    """Starts both, waits until they accept connections, and creates the bucket."""
    postgres = engine.run(
        builder.build(f"{REPOSITORY}/postgres", _FILE, target="postgres", PASSWORD=PASSWORD),
        network=network,
        aliases=["postgres"],
        options=["--read-only=false"],
    )
    s3 = engine.run(
        builder.build(f"{REPOSITORY}/s3", _FILE, target="s3", MOTO=version("moto")),
        network=network,
        aliases=["s3"],
        ports=[S3_PORT],
    )
    postgres.wait_for_log("ready to accept connections")
    s3.wait_for_log("Running on")
    httpx.put(f"http://{s3.address(S3_PORT)}/{BUCKET}", timeout=FIRST_SECONDS, trust_env=False).raise_for_status()
    return Peers(postgres, s3)
