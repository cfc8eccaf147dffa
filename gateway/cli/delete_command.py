"""hugginggpt delete: deletes a run, batch or pipeline."""

from gateway.cli.batch.resume_command import is_batch
from gateway.cli.run_commands import connected_gateway
from gateway.client.models import reference

RUN_PREFIX = "run_"
"""Prefix of run ids. An argument that is neither a run id nor a batch id is a pipeline name."""


def delete(what: str, url: str | None, api_key: str | None) -> str:
    """Deletes a run, batch or pipeline; returns its key in the JSON output."""
    with connected_gateway(url, api_key) as client:
        if what.startswith(RUN_PREFIX):
            client.delete(what)
            return "run_id"
        if is_batch(what):
            client.delete_batch(what)
            return "batch_id"
        target = reference(what)
        client.delete_pipeline(target["name"], target.get("version", 0))
        return "pipeline"
