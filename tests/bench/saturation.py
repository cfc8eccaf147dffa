"""Which resource saturates first as the rate of runs grows, from figures of README.md and the settings' defaults."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from experts.host.devices import MAX_WAITING
from services.common.database import DEFAULT_CONNECTIONS
from services.orchestrator.settings import Settings as Orchestrator
from tests.bench.capacity import BUSY, DAY_SECONDS, RATES, REPLICAS, SERVICE_NAMES, Figures, service_rows

FEW, MANY, MOST = RATES
POSTGRES_CONNECTIONS = 100
"""Default of PostgreSQL's max_connections."""
RUN_SECONDS, RUN_MB = 3, 1
"""Duration and upload of the example run."""
MAX_RUNS: int = Orchestrator.model_fields["max_runs"].default
CALLS: int = Orchestrator.model_fields["calls_per_expert"].default
RETENTION_DAYS: float = Orchestrator.model_fields["keep_seconds"].default / DAY_SECONDS

Needs = Mapping[str, Sequence[object]]
"""Capacity at each of the RATES, by resource."""


def bullet_list(known: Figures) -> str:
    """Markdown list of the bottlenecks by rising rate, and of transfers if they were measured."""
    needs = {str(name): counts for name, *counts in service_rows(known, RATES, tasks=1)}
    points = (_few(known), _many(known, needs), _run_slots(needs), _most(needs), *_bytes(known))
    return "".join(f"- {point}\n" for point in points)


def _few(known: Figures) -> str:
    cores = FEW * sum(known[f"hops.{name}_ms"] for name in (*SERVICE_NAMES, "postgres")) / 1000
    return (
        f"*At {FEW:g} a second* only experts do. The services and their database take {cores:.2g} of a core; "
        f"{REPLICAS} replicas of each service are needed for availability only."
    )


def _many(known: Figures, needs: Needs) -> str:
    terabytes = MANY * known["hops.kept_kb"] * DAY_SECONDS * RETENTION_DAYS / 1e9
    held = needs["PostgreSQL: connections"][1]
    return (
        f"*At {MANY:,g} a second* the disk of the database does: {needs['PostgreSQL: growth, GB a day'][1]} GB a "
        f"day, {terabytes:.2g} TB in the {RETENTION_DAYS:g} days that runs are retained. "
        f"`ORCHESTRATOR_KEEP_SECONDS={DAY_SECONDS}` retains one day. Next are its connections: every gateway and "
        f"orchestrator holds {DEFAULT_CONNECTIONS}, which together is {held:,}, and PostgreSQL accepts "
        f"{POSTGRES_CONNECTIONS} by default (`max_connections`). A connection pooler must use session pooling, since "
        f"LISTEN and NOTIFY belong to a session. The database uses {needs['PostgreSQL: cores busy'][1]} cores."
    )


def _run_slots(needs: Needs) -> str:
    at_once = MANY * RUN_SECONDS
    return (
        f"Next are run slots. An orchestrator has {MAX_RUNS} active runs at once (`ORCHESTRATOR_MAX_RUNS`) and "
        f"{CALLS} calls of one expert (`ORCHESTRATOR_CALLS_PER_EXPERT`), and a model in one expert pod accepts "
        f"{MAX_WAITING} calls or more, running or waiting (`EXPERT_MAX_WAITING`). Active runs are *rate × seconds of a "
        f"run*: at {MANY:,g} a second and {RUN_SECONDS} s each {at_once:,g}, which is {ceil(at_once / MAX_RUNS)} "
        f"orchestrators at least; the table has {needs['orchestrator, processes'][1]}. Requests above the limits are "
        f"refused at once with 429 and `Retry-After`, or retried internally. A gateway for which a dozen runs were "
        f"refused within two seconds, or a dozen wait as long to be accepted, refuses most further requests itself, "
        f"which saves CPU time for runs."
    )


def _most(needs: Needs) -> str:
    return (
        f"*At {MOST:,g} a second* one deployment is the wrong shape. Its database would use "
        f"{needs['PostgreSQL: cores busy'][2]} cores and hold {needs['PostgreSQL: connections'][2]:,} connections, "
        f"and each of {needs['selector, processes'][2]:,} selectors would call `Describe` of every expert pod once a "
        f"second; this was not measured. Use deployments of about {MANY:,g} a second instead, each in a namespace with "
        f"its own database and bucket, and assign each tenant to one: tenants share no data. That is "
        f"{MOST / MANY:g} deployments of the middle column, and the experts of the last."
    )


def _bytes(known: Figures) -> Iterator[str]:
    if not {"bytes.upload_mb_per_s", "bytes.download_mb_per_s"} <= known.keys():
        return
    upload, download = known["bytes.upload_mb_per_s"], known["bytes.download_mb_per_s"]
    yield (
        f"*Bytes*: a gateway receives {upload:,g} MB/s and sends {download:,g} MB/s (`bytes.upload_mb_per_s`, "
        f"`bytes.download_mb_per_s`, on a local disk). At {MANY:,g} runs a second with an image of {RUN_MB} MB "
        f"each, uploads keep {ceil(MANY * RUN_MB / upload / BUSY)} gateways busy, and the network of the store. With "
        f"an S3 server that clients can reach, downloads bypass the gateway."
    )
