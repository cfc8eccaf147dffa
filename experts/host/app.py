"""An expert as a process: what each experts/<modality>/__main__.py calls."""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from functools import partial
from math import inf

import structlog
from google.protobuf import json_format

from experts.host.description import Description
from experts.host.devices import Places
from experts.host.expert import Expert, read_expert
from experts.host.extras import EngineNotInstalled, install_command, is_missing_dependency, missing_package
from experts.host.inference import Inference
from experts.host.isolation import running
from experts.host.models import Limits, Models
from experts.host.prefetch import prefetch
from experts.host.servicer import ExpertServicer
from experts.host.settings import Settings
from experts.host.threads import Threads, any_busy
from experts.host.watchdog import watch
from experts.host.worker_pool import Workers
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common.artifacts import ArtifactStore
from services.common.errors import MISSING_DEPENDENCY_STATUS
from services.common.server import RunningServer, run, service_process, serving

log = structlog.get_logger(__name__)

EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]


def serve_expert(package: str, arguments: Sequence[str] | None = None) -> None:
    """Runs the expert of a package until a signal comes, unless it is only to describe itself or to fetch its models.

    Args:
        package: its name.
        arguments: None for those of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=f"The expert {package}, over gRPC.")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--describe", action="store_true", help="print what it offers as JSON, and end")
    instead.add_argument(
        "--prefetch", action="store_true", help="fetch the models it may serve (EXPERT_ALLOWED) into the cache, and end"
    )
    told, name = parser.parse_args(arguments), "expert-" + package.rpartition(".")[2]
    if told.describe:
        with (
            service_process(name, Settings) as settings,
            redirect_stdout(sys.stderr),  # what is logged is no description
            _missing_packages_reported(package),
        ):
            description = describe(read_expert(package), settings)
        sys.stdout.write(description)
        return
    if told.prefetch:
        with service_process(name, Settings) as settings, _missing_packages_reported(package):
            fetched = prefetch(read_expert(package).only(settings.allowed_ids), Places(settings.devices))
        sys.exit(0 if fetched else 1)
    run(name, partial(_served, package), Settings)
    if any_busy():
        logging.shutdown()
        os._exit(0)  # the interpreter's teardown aborts under a thread in native code


@contextmanager
def _missing_packages_reported(package: str) -> Iterator[None]:
    """Ends the process with one line if a package that the expert needs is not installed.

    Raises:
        SystemExit: MISSING_DEPENDENCY, after a line that names the expert and the command that helps.
    """
    name = package.rpartition(".")[2]
    try:
        yield
    except EngineNotInstalled as error:
        cause, remedy = error.message, error.remedy
    except ModuleNotFoundError as error:
        if not is_missing_dependency(error):
            raise
        cause, remedy = missing_package(error), install_command(name, error.name or "")
    else:
        return
    log.error("expert not started", expert=name, error=cause, remedy=remedy)
    raise SystemExit(MISSING_DEPENDENCY_STATUS)


@asynccontextmanager
async def _served(package: str, settings: Settings) -> AsyncIterator[RunningServer]:
    """Serves the expert of a package."""
    async with AsyncExitStack() as stack:
        with _missing_packages_reported(package):  # some are imported only when the expert opens its connections
            running = await stack.enter_async_context(opened(read_expert(package), settings))
        yield running


def describe(expert: Expert, settings: Settings) -> str:
    """What the expert would answer to Describe before any of its models is loaded, as protobuf's JSON."""
    allowed = expert.only(settings.allowed_ids)
    with closing(_models(allowed, settings)) as models:
        reply = Description(allowed, models, settings).since("")
    return json_format.MessageToJson(reply, preserving_proto_field_name=True) + "\n"


@asynccontextmanager
async def opened(expert: Expert, settings: Settings) -> AsyncIterator[RunningServer]:
    """Serves the expert; it is ready once its models to be preloaded are.

    Raises:
        FailedPrecondition: it has none of the models that are allowed, or no device that is asked for.
        Unavailable: the artifact store does not answer, or the address is taken.
    """
    began = time.monotonic() - time.process_time()  # what the process did before was importing, all of it work
    expert = _as_told(expert, settings)
    store = await ArtifactStore.open_when_available(settings.artifacts_url)
    isolation = replace(settings.isolation, modules=expert.isolated_modules)
    with (
        running(isolation, ahead=expert.takes_files),
        closing(_models(expert, settings)) as models,
        closing(Threads("cpu", settings.threads, elastic=True)) as cpu,
    ):
        await models.check_places()
        description = Description(expert, models, settings)
        servicer = ExpertServicer(expert, models, description, Inference(cpu), store=store, settings=settings)
        register = partial(rpc.add_ExpertServiceServicer_to_server, servicer)
        async with (
            expert.beside(models.tell),
            serving(
                register,
                EXPERT,
                listen=settings.listen,
                drain_seconds=settings.drain_seconds,
                ready=False,
                health_listen=settings.health_listen,
            ) as server,
            _beside(_tell_health(models, description, server)),
            _beside(watch(models, server, batch_seconds=settings.device_seconds, load_seconds=_patience(settings))),
            _beside(_get_ready(expert, models, description, server, began)),
        ):
            yield server


def _as_told(expert: Expert, settings: Settings) -> Expert:
    """The expert with those of its models that are allowed, where these are to live."""
    allowed = expert.only(settings.allowed_ids)
    if settings.workers == "thread":
        return allowed
    workers = Workers(
        settings.threads, settings.load_seconds, (settings.log_level, settings.log_format), settings.isolation
    )
    offers = (replace(each, loader=workers.loader(each.spec.name, each.loader)) for each in allowed.offers)
    return replace(allowed, offers=tuple(offers))


def _patience(settings: Settings) -> float:
    """How long a load may take before the expert is not alive; of a worker process whoever waits for it takes care."""
    return settings.load_seconds if settings.workers == "thread" else inf


def _models(expert: Expert, settings: Settings) -> Models:
    limits = Limits(settings.max_waiting, settings.batch_items, settings.background_seconds, settings.memory_bytes)
    return Models(expert.offers, limits, devices=expert.devices, places=settings.devices, pool=settings.pool)


async def _get_ready(
    expert: Expert, models: Models, description: Description, server: RunningServer, began: float
) -> None:
    if not await models.load(expert.preload):
        log.error("not ready: no model could be loaded")
        return
    description.start_duration = timedelta(seconds=time.monotonic() - began)
    await server.set_ready("", "startup", EXPERT.full_name)
    await server.set_ready("readiness", ready=models.any_use)
    log.info("ready", loaded=sorted(models.loaded), seconds=round(description.start_duration.total_seconds(), 2))


async def _tell_health(models: Models, description: Description, server: RunningServer) -> None:
    """Keeps one name per model on grpc.health.v1; once all is ready, readiness stays true while any model is of use."""
    while True:
        models.changed.clear()
        if description.start_duration is not None:
            await server.set_ready("readiness", ready=models.any_use)
        for model_id in models.ids:
            await server.set_ready(model_id, ready=model_id in models.loaded)
        await models.changed.wait()


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs the work as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
