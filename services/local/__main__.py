"""Starts all services on this machine: python -m services.local --help."""

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
from services.common.tls import set_process_identity
from services.llm.settings import LlmSettings
from services.local.ports import Ports, free_address
from services.local.supervisor import Child, supervise

log = structlog.get_logger(__name__)

DISCOVERY_SECONDS = 10.0
"""How long the selector may take to discover experts that are ready."""

DESCRIPTION = """\
Starts the gateway, the planner, the selector, the responder, the orchestrator and the experts on this machine, each
with a server of its own; restarts processes that exit; stops all on Ctrl-C, and kills all on a second Ctrl-C.

When all are ready, one line of JSON goes to standard output: {"ready": true, "url": …, "grpc": …, "pid": …,
"children": {name: pid}}. Everything else goes to standard error."""

EXAMPLES = """\
examples:
  python -m services.local
  python -m services.local --experts lite --http 127.0.0.1:8090
  python -m services.local --orchestrators 2 --http 127.0.0.1:0 --grpc 127.0.0.1:0

Each service also reads its settings from the environment, such as HUGGINGGPT_HOME and LOG_LEVEL, and LLM_BASE_URL,
LLM_MODEL and LLM_API_KEY for an OpenAI-compatible endpoint that plans, selects, answers and, as the expert llm, runs
tasks; PLANNER_LLM_MODEL, EXPERT_LLM_MODEL and the like apply to one of the four only. Without an endpoint, or if it
fails, embedded controllers plan, select and answer.
ORCHESTRATOR_JOURNAL=postgresql://user:password@host:5432/name stores runs in PostgreSQL instead of a SQLite file.
METRICS_LISTEN=127.0.0.1:9464 is the address of the first process's GET /metrics; the others use the ports after it."""


@dataclass(frozen=True)
class LocalStack:
    """The processes of a local stack, and their addresses."""

    http: str
    grpc: str
    selector: str
    experts: Sequence[str]
    stages: Sequence[Sequence[Child]]


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        "python -m services.local",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--experts",
        metavar="NAMES",
        help='folders of experts/, separated by commas; "" for none (default: lite, and llm if an LLM is configured)',
    )
    parser.add_argument(
        "--orchestrators", type=int, default=1, metavar="N", help="processes that share the runs (default: 1)"
    )
    parser.add_argument(
        "--http",
        default=os.environ.get("GATEWAY_HTTP_LISTEN", "127.0.0.1:8080"),
        metavar="HOST:PORT",
        help="address of the gateway's HTTP server; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--grpc",
        default=os.environ.get("GATEWAY_LISTEN", "127.0.0.1:50051"),
        metavar="HOST:PORT",
        help="address of the gateway's gRPC server; port 0 takes a free one (default: %(default)s)",
    )
    return parser.parse_args()


def local_stack(options: argparse.Namespace, ports: Ports) -> LocalStack:
    """Assigns every process its address and the addresses of the services that it calls.

    Raises:
        InvalidRequest: an invalid expert, number, or LLM setting.
        Unavailable: an address of the gateway is in use, or HUGGINGGPT_HOME is not writable.
    """
    if options.orchestrators < 1:
        raise InvalidRequest("there must be at least one orchestrator", remedy="give --orchestrators 1 or more")
    _check_llms()
    http, grpc_address = free_address(options.http, option="--http"), free_address(options.grpc, option="--grpc")
    planner, selector, responder, gateway_health = (ports.reserve() for _ in range(4))
    experts = {name: ports.reserve() for name in _check_experts(_expert_names(options))}
    orchestrators = [ports.reserve() for _ in range(options.orchestrators)]
    expert_addresses = _create_folder(home() / "experts")
    services = Child(
        "services",
        "services.local.shared_process",
        (planner, selector, responder),
        {
            "PLANNER_LISTEN": planner,
            "PLANNER_SELECTOR": selector,
            "SELECTOR_LISTEN": selector,
            "SELECTOR_EXPERTS": ",".join((*experts.values(), str(expert_addresses))),
            "RESPONDER_LISTEN": responder,
            "GATEWAY_LISTEN": grpc_address,
            "GATEWAY_HTTP_LISTEN": http,
            "GATEWAY_ORCHESTRATOR": "ipv4:" + ",".join(orchestrators),
            "GATEWAY_SELECTOR": selector,
            "GATEWAY_HEALTH_LISTEN": gateway_health,
        },
        health_addresses=(gateway_health,),
    )
    orchestrator_settings = {
        "ORCHESTRATOR_PLANNER": planner,
        "ORCHESTRATOR_SELECTOR": selector,
        "ORCHESTRATOR_RESPONDER": responder,
    }
    orchestrator_children = [
        Child(
            f"orchestrator-{number}",
            "services.orchestrator",
            (address,),
            {**orchestrator_settings, "ORCHESTRATOR_LISTEN": address},
        )
        for number, address in enumerate(orchestrators, start=1)
    ]
    expert_children = [
        Child(name, f"experts.{name}", (address,), {"EXPERT_LISTEN": address}, essential=False)
        for name, address in experts.items()
    ]
    stages = _with_metrics(os.environ.get("METRICS_LISTEN", ""), ([services], orchestrator_children, expert_children))
    return LocalStack(http, grpc_address, selector, list(experts), stages)


def _with_metrics(listen: str, stages: Sequence[Sequence[Child]]) -> list[list[Child]]:
    """Sets METRICS_LISTEN of each child: consecutive ports, starting with the given one."""
    host, _, first = listen.rpartition(":")
    if not first.isdecimal() or int(first) == 0:
        return [list(stage) for stage in stages]
    ports = itertools.count(int(first))
    return [
        [replace(child, settings={**child.settings, "METRICS_LISTEN": f"{host}:{next(ports)}"}) for child in stage]
        for stage in stages
    ]


def _check_llms() -> None:
    """Checks the settings of LLMs before any process is started with them.

    Raises:
        InvalidRequest: they are invalid.
    """
    for role in ("planner", "selector", "responder", "expert"):
        try:
            LlmSettings.of(role)
        except ValueError as error:
            message = f"the settings of the {role}'s LLM, {role.upper()}_LLM_… or LLM_…, are invalid"
            raise InvalidRequest(message, remedy="run hugginggpt doctor for details") from error


def _create_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "set HUGGINGGPT_HOME to a folder that this user can write"
        raise Unavailable(f"cannot use {path}: {error.strerror}", remedy=remedy) from error
    return path


def _expert_names(options: argparse.Namespace) -> str:
    if options.experts is not None:
        return str(options.experts)
    return "lite,llm" if LlmSettings.of("expert").base_url else "lite"


def _check_experts(names: str) -> list[str]:
    """The experts in a comma-separated list."""
    folder = Path(__file__).parents[2] / "experts"
    offered = sorted(entry.parent.name for entry in folder.glob("*/tasks.py"))
    experts = [name.strip() for name in names.split(",") if name.strip()]
    for name in experts:
        if name not in offered:
            raise InvalidRequest(f"there is no expert {name}", remedy=f"give --experts some of: {', '.join(offered)}")
    return experts


async def wait_for_experts(selector: str, experts: Sequence[str]) -> None:
    """Waits until the selector lists the experts; from then on their tasks can be planned.

    Raises:
        TimeoutError: it does not, within DISCOVERY_SECONDS.
    """
    async with asyncio.timeout(DISCOVERY_SECONDS), connect(selector) as channel:
        stub = rpc.SelectorServiceStub(channel)
        async for _ in stub.WatchCatalogue(pb.WatchCatalogueRequest(), timeout=DISCOVERY_SECONDS):
            listed = {expert.name for expert in (await stub.ListExperts(pb.ListExpertsRequest(), timeout=5)).experts}
            if listed.issuperset(experts):
                return


async def _forget_experts(stack: LocalStack, absent: Sequence[Child]) -> None:
    """Removes experts that were not started from the selector."""
    if not absent:
        return
    try:
        async with connect(stack.selector) as channel:
            for address in itertools.chain(*(child.addresses for child in absent)):
                await rpc.SelectorServiceStub(channel).ForgetExpert(pb.ForgetExpertRequest(name=address), timeout=5)
    except grpc.aio.AioRpcError as error:
        log.warning("the selector still lists experts that were not started", error=error.details())


async def main(stack: LocalStack, settings: ServiceSettings) -> None:
    """Runs the local stack until a signal stops it."""

    async def on_ready(children: Mapping[str, int]) -> None:
        started = [name for name in stack.experts if name in children]
        try:
            await wait_for_experts(stack.selector, started)
        except (TimeoutError, grpc.aio.AioRpcError):
            log.warning("the selector does not list all experts yet", experts=started)
        await _forget_experts(stack, [child for child in itertools.chain(*stack.stages) if child.name not in children])
        url = f"{'https' if os.environ.get('GATEWAY_CERTIFICATE') else 'http'}://{stack.http}"
        ready = {"ready": True, "url": url, "grpc": stack.grpc, "pid": os.getpid(), "children": children}
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        log.info("local stack ready", url=url, grpc=stack.grpc)

    await supervise(stack.stages, on_ready, _stop_event(), stop_seconds=settings.drain_seconds + 2)


def _stop_event() -> asyncio.Event:
    """An event set by the first SIGINT or SIGTERM; the second cancels the current task, which kills all children."""
    stop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set() and task:
            task.cancel()
        log.info("killing all processes" if stop.is_set() else "stopping")
        stop.set()

    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, on_signal)
    return stop


def run(options: argparse.Namespace) -> int:
    """Runs the local stack; returns exit status 0 after it was stopped, 1 if it cannot run, 130 if it was killed."""
    logging.setup("supervisor")
    try:
        settings = from_environment(ServiceSettings)
        logging.setup("supervisor", level=settings.log_level, style=settings.log_format)
        set_process_identity(settings.identity)
        with Ports() as ports:
            asyncio.run(main(local_stack(options, ports), settings))
    except ServiceError as error:
        log.error("cannot run", error=error.message, remedy=error.remedy)  # noqa: TRY400  # the traceback adds nothing
        return 1
    except asyncio.CancelledError:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run(parse_arguments()))
