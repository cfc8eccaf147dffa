"""hugginggpt delete: whatever its id says that it is."""

from gateway.cli.batch.resume_command import is_batch
from gateway.cli.run_commands import asking
from gateway.client.pipelines.models import reference

RUN = "run_"
"""With which ids of runs begin; what is the id of nothing is the name of a pipeline."""


def delete(what: str, url: str | None, api_key: str | None) -> str:
    """Removes it; says what it was, as JSON calls it."""
    with asking(url, api_key) as house:
        if what.startswith(RUN):
            house.delete(what)
            return "run_id"
        if is_batch(what):
            house.delete_batch(what)
            return "batch_id"
        meant = reference(what)
        house.delete_pipeline(meant["name"], meant.get("version", 0))
        return "pipeline"
