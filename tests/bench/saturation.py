"""What gives out first as the rate of runs grows, by README's figures and the defaults of the settings."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from experts.host.settings import Settings as Expert
from services.orchestrator.settings import Settings as Orchestrator
from tests.bench.capacity import BUSY, CONNECTIONS, DAY_SECONDS, RATES, REPLICAS, ROOMS, Figures, house

FEW, MANY, MOST = RATES
TAKEN_CONNECTIONS = 100
"""PostgreSQL's max_connections, unless it is told otherwise."""
RUN_SECONDS, RUN_MB = 3, 1
"""Of an example."""
PLACES: int = Orchestrator.model_fields["max_runs"].default
CALLS: int = Orchestrator.model_fields["calls_per_expert"].default
WAITING: int = Expert.model_fields["max_waiting"].default
KEPT_DAYS: float = Orchestrator.model_fields["keep_seconds"].default / DAY_SECONDS

Needs = Mapping[str, Sequence[object]]
"""What the rates of the page need, by what it is."""


def told(known: Figures) -> str:
    """A list, from the lowest rate to the highest, and of bytes where they were measured."""
    needs = {str(name): counts for name, *counts in house(known, RATES, tasks=1)}
    points = (_few(known), _many(known, needs), _places(needs), _most(needs), *_bytes(known))
    return "".join(f"- {point}\n" for point in points)


def _few(known: Figures) -> str:
    cores = FEW * sum(known[f"hops.{room}_ms"] for room in (*ROOMS, "postgres")) / 1000
    return (
        f"*At {FEW:g} a second* only experts do. The house and its database take {cores:.2g} of a core, so "
        f"{REPLICAS} replicas of each service are there for the sake of one another."
    )


def _many(known: Figures, needs: Needs) -> str:
    terabytes = MANY * known["hops.kept_kb"] * DAY_SECONDS * KEPT_DAYS / 1e9
    held = needs["PostgreSQL: connections"][1]
    return (
        f"*At {MANY:,g} a second* the disk of the database does: {needs['PostgreSQL: growth, GB a day'][1]} GB a "
        f"day, {terabytes:.2g} TB in the {KEPT_DAYS:g} days that runs are kept. "
        f"`ORCHESTRATOR_KEEP_SECONDS={DAY_SECONDS}` keeps a day. Then come its connections: every gateway and "
        f"orchestrator holds {CONNECTIONS}, which together is {held:,}, and PostgreSQL takes {TAKEN_CONNECTIONS} "
        f"unless told otherwise (`max_connections`). A pooler between must keep sessions, since notices belong to "
        f"one. Of processors the database uses {needs['PostgreSQL: cores busy'][1]} cores."
    )


def _places(needs: Needs) -> str:
    at_once = MANY * RUN_SECONDS
    return (
        f"Then come places. An orchestrator has {PLACES} runs under way at once (`ORCHESTRATOR_MAX_RUNS`) and "
        f"{CALLS} calls of one expert (`ORCHESTRATOR_CALLS_PER_EXPERT`), and a model of one expert's pod takes "
        f"{WAITING} calls, running or waiting (`EXPERT_MAX_WAITING`). Runs under way are *rate × seconds of a run*: "
        f"at {MANY:,g} a second and {RUN_SECONDS} s each {at_once:,g}, which is {ceil(at_once / PLACES)} "
        f"orchestrators at least; the table has {needs['orchestrator, processes'][1]}. What is too much is refused "
        f"at once with 429 and `Retry-After`, or tried again inside. A gateway that was refused a dozen runs within "
        f"two seconds, or has a dozen that wait as long to be accepted, refuses most of what follows by itself: "
        f"refusals leave the processor to runs."
    )


def _most(needs: Needs) -> str:
    return (
        f"*At {MOST:,g} a second* one house is the wrong shape. Its database would use "
        f"{needs['PostgreSQL: cores busy'][2]} cores and hold {needs['PostgreSQL: connections'][2]:,} connections, "
        f"and each of {needs['selector, processes'][2]:,} selectors would ask every expert's pod once a second what "
        f"it is; nobody has seen that here. Build houses of about {MANY:,g} a second instead, a namespace each with "
        f"a database and a bucket of its own, and give each tenant one of them: tenants share nothing. That is "
        f"{MOST / MANY:g} houses of the middle column, and the experts of the last."
    )


def _bytes(known: Figures) -> Iterator[str]:
    if not {"bytes.upload_mb_per_s", "bytes.download_mb_per_s"} <= known.keys():
        return
    taken, given = known["bytes.upload_mb_per_s"], known["bytes.download_mb_per_s"]
    yield (
        f"*Bytes*: a gateway takes in {taken:,g} MB/s and gives out {given:,g} MB/s (`bytes.upload_mb_per_s`, "
        f"`bytes.download_mb_per_s`, on a local disk). At {MANY:,g} runs a second with a picture of {RUN_MB} MB "
        f"each, uploads keep {ceil(MANY * RUN_MB / taken / BUSY)} gateways busy, and the network of the store. With "
        f"an S3 server that clients reach, what they fetch does not pass the gateway at all."
    )
