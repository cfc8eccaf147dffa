"""The whole house on one machine: python -m services.local --help."""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import structlog

from protos.hugginggpt.internal.v1 import selector_pb2 as pb
from protos.hugginggpt.internal.v1 import selector_pb2_grpc as rpc
from services.common import logging
from services.common.channel import connect
from services.common.errors import InvalidRequest, ServiceError, Unavailable
from services.common.settings import ServiceSettings, from_environment, home
from services.common.tls import assume
from services.llm.settings import LlmSettings
from services.local.ports import Ports, free
from services.local.supervisor import Child, supervise

log = structlog.get_logger(__name__)

HOST = "host"
"""The folder of what experts stand on; its own entry serves experts that lie elsewhere."""

KNOWN_SECONDS = 10.0
"""How long the selector may take to learn of experts that are ready."""

DESCRIPTION = """\
Starts the gateway, the planner, the selector, the responder, the orchestrator and the experts on this machine, each
with a server of its own; restarts what dies; stops all on Ctrl-C, and at once on a second Ctrl-C.

When everything answers, one line of JSON goes to standard output: {"ready": true, "url": …, "grpc": …, "pid": …,
"children": {name: pid}}. Everything else goes to standard error."""

EXAMPLES = """\
examples:
  python -m services.local
  python -m services.local --experts lite --http 127.0.0.1:8090
  python -m services.local --orchestrators 2 --http 127.0.0.1:0 --grpc 127.0.0.1:0

Each service also reads its settings from the environment, such as HUGGINGGPT_HOME and LOG_LEVEL, and LLM_BASE_URL,
LLM_MODEL and LLM_API_KEY for an OpenAI-compatible endpoint that plans, chooses and answers; PLANNER_LLM_MODEL and the
like are for one of the three alone. Without an endpoint, or where it fails, the house does without.
ORCHESTRATOR_JOURNAL=postgresql://user:password@host:5432/name keeps the runs in PostgreSQL instead of a SQLite file.
METRICS_LISTEN=127.0.0.1:9464 has the first process answer GET /metrics there, the others at the ports after it."""


@dataclass(frozen=True)
class House:
    """Who runs, and where they are found."""

    http: str
    grpc: str
    selector: str
    experts: Sequence[str]
    stages: Sequence[Sequence[Child]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m services.local",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--experts", default="lite", metavar="NAMES", help='folders of experts/, by comma; "" for none (default: lite)'
    )
    parser.add_argument(
        "--orchestrators", type=int, default=1, metavar="N", help="processes that share the runs (default: 1)"
    )
    parser.add_argument(
        "--http",
        default=os.environ.get("GATEWAY_HTTP_LISTEN", "127.0.0.1:8080"),
        metavar="HOST:PORT",
        help="where the gateway answers HTTP; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--grpc",
        default=os.environ.get("GATEWAY_LISTEN", "127.0.0.1:50051"),
        metavar="HOST:PORT",
        help="where the gateway answers gRPC; port 0 takes a free one (default: %(default)s)",
    )
    return parser.parse_args()


def house(asked: argparse.Namespace, ports: Ports) -> House:
    """Gives every child its name, its address and the addresses of those it calls.

    Raises:
        InvalidRequest: an expert, a number or the settings of an LLM that cannot be.
        Unavailable: the gateway cannot listen where it should, or nothing can be kept.
    """
    if asked.orchestrators < 1:
        raise InvalidRequest("there must be at least one orchestrator", remedy="give --orchestrators 1 or more")
    _check_llms()
    http, own_grpc = free(asked.http, option="--http"), free(asked.grpc, option="--grpc")
    planner, selector, responder, probe = (ports.keep() for _ in range(4))
    experts = {name: ports.keep() for name in _experts(asked.experts)}
    orchestrators = [ports.keep() for _ in range(asked.orchestrators)]
    added = _folder(home() / "experts")
    light = Child(
        "light",
        "services.local.light_services",
        (planner, selector, responder),
        {
            "PLANNER_LISTEN": planner,
            "PLANNER_SELECTOR": selector,
            "SELECTOR_LISTEN": selector,
            "SELECTOR_EXPERTS": ",".join((*experts.values(), str(added))),
            "RESPONDER_LISTEN": responder,
            "GATEWAY_LISTEN": own_grpc,
            "GATEWAY_HTTP_LISTEN": http,
            "GATEWAY_ORCHESTRATOR": "ipv4:" + ",".join(orchestrators),
            "GATEWAY_SELECTOR": selector,
            "GATEWAY_HEALTH_LISTEN": probe,
        },
        probes=(probe,),
    )
    reached = {
        "ORCHESTRATOR_PLANNER": planner,
        "ORCHESTRATOR_SELECTOR": selector,
        "ORCHESTRATOR_RESPONDER": responder,
    }
    numbered = [
        Child(f"orchestrator-{number}", "services.orchestrator", (own,), {**reached, "ORCHESTRATOR_LISTEN": own})
        for number, own in enumerate(orchestrators, start=1)
    ]
    working = [
        Child(name, f"experts.{name}", (own,), {"EXPERT_LISTEN": own}, essential=False) for name, own in experts.items()
    ]
    stages = _measured(os.environ.get("METRICS_LISTEN", ""), ([light], numbered, working))
    return House(http, own_grpc, selector, list(experts), stages)


def _measured(listen: str, stages: Sequence[Sequence[Child]]) -> list[list[Child]]:
    """Gives each child a place of its own for its metrics: the first the one that is set, the others ports after it."""
    host, _, first = listen.rpartition(":")
    if not first.isdecimal() or int(first) == 0:
        return [list(stage) for stage in stages]
    ports = itertools.count(int(first))
    return [
        [replace(child, settings={**child.settings, "METRICS_LISTEN": f"{host}:{next(ports)}"}) for child in stage]
        for stage in stages
    ]


def _check_llms() -> None:
    """Says before anything starts what would keep a room from starting.

    Raises:
        InvalidRequest: the settings of an LLM cannot be used.
    """
    for role in ("planner", "selector", "responder"):
        try:
            LlmSettings.of(role)
        except ValueError as error:
            message = f"the settings of the {role}'s LLM, {role.upper()}_LLM_… or LLM_…, cannot be used"
            raise InvalidRequest(message, remedy="hugginggpt doctor says what is wrong with them") from error


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "set HUGGINGGPT_HOME to a folder that this user may write"
        raise Unavailable(f"cannot use {path}: {error.strerror}", remedy=remedy) from error
    return path


def _experts(names: str) -> list[str]:
    folder = Path(__file__).parents[2] / "experts"
    offered = sorted(entry.parent.name for entry in folder.glob("*/__main__.py") if entry.parent.name != HOST)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in offered:
            raise InvalidRequest(f"there is no expert {name}", remedy=f"give --experts some of: {', '.join(offered)}")
    return wanted


async def known(selector: str, experts: Sequence[str]) -> None:
    """Waits until the selector has learnt of the experts: from then on their tasks can be planned."""
    async with asyncio.timeout(KNOWN_SECONDS), connect(selector) as channel:
        stub = rpc.SelectorServiceStub(channel)
        async for _ in stub.WatchCatalogue(pb.WatchCatalogueRequest(), timeout=KNOWN_SECONDS):
            there = {expert.name for expert in (await stub.ListExperts(pb.ListExpertsRequest(), timeout=5)).experts}
            if there.issuperset(experts):
                return


async def _forget(standing: House, absent: Sequence[Child]) -> None:
    """Has the selector stop calling addresses at which no expert was started."""
    if not absent:
        return
    try:
        async with connect(standing.selector) as channel:
            for address in itertools.chain(*(child.addresses for child in absent)):
                await rpc.SelectorServiceStub(channel).ForgetExpert(pb.ForgetExpertRequest(name=address), timeout=5)
    except grpc.aio.AioRpcError as error:
        log.warning("the selector still lists experts that were not started", error=error.details())


async def main(standing: House, settings: ServiceSettings) -> None:
    async def announce(children: Mapping[str, int]) -> None:
        started = [name for name in standing.experts if name in children]
        try:
            await known(standing.selector, started)
        except (TimeoutError, grpc.aio.AioRpcError):
            log.warning("the selector has not learnt of all experts yet", experts=started)
        await _forget(standing, [child for child in itertools.chain(*standing.stages) if child.name not in children])
        url = f"{'https' if os.environ.get('GATEWAY_CERTIFICATE') else 'http'}://{standing.http}"
        ready = {"ready": True, "url": url, "grpc": standing.grpc, "pid": os.getpid(), "children": children}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        log.info("the house is ready", url=url, grpc=standing.grpc)

    await supervise(standing.stages, announce, _stop(), stop_seconds=settings.drain_seconds + 2)


def _stop() -> asyncio.Event:
    """Set by the first signal; the second cancels the current task, which kills all children."""
    stop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set() and task:
            task.cancel()
        log.info("stopping at once" if stop.is_set() else "stopping; again to stop at once")
        stop.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, on_signal)
    return stop


def run(asked: argparse.Namespace) -> int:
    """The exit status: 0 stopped, 1 cannot stand, 130 stopped at once."""
    logging.setup("supervisor")
    try:
        settings = from_environment(ServiceSettings)
        logging.setup("supervisor", level=settings.log_level, style=settings.log_format)
        assume(settings.identity)
        with Ports() as ports:
            asyncio.run(main(house(asked, ports), settings))
    except ServiceError as error:
        log.error("the house cannot stand", error=error.message, remedy=error.remedy)  # noqa: TRY400  # the trace says nothing more
        return 1
    except asyncio.CancelledError:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run(arguments()))
