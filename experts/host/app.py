"""Expert process, called by each experts/<modality>/__main__.py: serves, describes, or fetches the files of models."""

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

from experts.host.devices import Placements, default_threads
from experts.host.expert import (
    EngineNotInstalled,
    Expert,
    install_command,
    is_missing_dependency,
    missing_package,
    read_expert,
)
from experts.host.inference import Inference
from experts.host.isolation import running
from experts.host.load_context import ComputeOptions
from experts.host.model_manager import Limits, ModelManager
from experts.host.prefetch import prefetch
from experts.host.servicer import Description, ExpertServicer
from experts.host.settings import Settings
from experts.host.threads import ThreadPool, any_busy
from experts.host.workers import WorkerSettings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from services.common.artifacts import ArtifactStore
from services.common.errors import MISSING_DEPENDENCY_STATUS
from services.common.server import RunningServer, run, service_process, serving

log = structlog.get_logger(__name__)

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 5.0


async def watch(models: ModelManager, running: RunningServer, *, batch_seconds: float, load_seconds: float) -> None:
    """Kills worker processes whose batch is overdue; without a worker process, sets liveness to NOT_SERVING.

    Args:
        models: the models of the expert.
        running: the server whose liveness is set.
        batch_seconds: maximum duration of a batch.
        load_seconds: maximum duration of a load.
    """
    alive, pause = True, min(max(batch_seconds / 10, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
    while True:
        await asyncio.sleep(pause)
        overdue = [batcher for batcher in models.batchers if _is_overdue(batcher.busy_since, batch_seconds)]
        stuck = [batcher.model_id for batcher in overdue if not batcher.kill(batch_seconds)]
        loading = [model.id for model in models.all if model.load_progress is not None]
        if _is_overdue(models.loading_since, load_seconds):
            stuck += loading
        if alive == (not stuck):
            continue
        alive = not stuck
        await running.set_ready("liveness", ready=alive)
        if stuck:
            log.error("not alive: models are stuck", models=stuck)
        else:
            log.info("alive again")


def _is_overdue(since: float | None, seconds: float) -> bool:
    return since is not None and time.monotonic() - since > seconds


EXPERT = pb.DESCRIPTOR.services_by_name["ExpertService"]


def serve_expert(package: str, arguments: Sequence[str] | None = None) -> None:
    """Serves the expert of a package until a signal, or only prints its description or fetches its models.

    Args:
        package: name of the expert's package.
        arguments: command-line arguments; None for those of the process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=f"The expert {package}, over gRPC.")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--describe", action="store_true", help="print tasks and models as JSON, and exit")
    modes.add_argument(
        "--prefetch", action="store_true", help="download the served models (EXPERT_ALLOWED) to the cache, and exit"
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="with --prefetch: succeed without the models that cannot be downloaded, if there are others",
    )
    options, name = parser.parse_args(arguments), "expert-" + package.rpartition(".")[2]
    if options.describe:
        with (
            service_process(name, Settings) as settings,
            redirect_stdout(sys.stderr),  # logs must not mix with the description
            _report_missing_packages(package),
        ):
            description = describe(read_expert(package), settings)
        sys.stdout.write(description)
        return
    if options.prefetch:
        with service_process(name, Settings) as settings, _report_missing_packages(package):
            expert = read_expert(package).only(settings.allowed_ids)
            fetched = prefetch(expert, Placements(settings.devices), allow_missing=options.allow_missing)
        sys.exit(0 if fetched else 1)
    run(name, partial(_serve_package, package), Settings)
    if any_busy():
        logging.shutdown()
        os._exit(0)  # the interpreter's teardown aborts while a thread runs native code


@contextmanager
def _report_missing_packages(package: str) -> Iterator[None]:
    """Ends the process with one log line if a package that the expert needs is not installed.

    Raises:
        SystemExit: MISSING_DEPENDENCY, after logging the expert and the command that installs the package.
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
async def _serve_package(package: str, settings: Settings) -> AsyncIterator[RunningServer]:
    """Serves the expert of a package."""
    async with AsyncExitStack() as stack:
        with _report_missing_packages(package):  # some are imported only when the expert opens its connections
            running = await stack.enter_async_context(serve(read_expert(package), settings))
        yield running


def describe(expert: Expert, settings: Settings) -> str:
    """Returns the Describe response before any model is loaded, as protobuf JSON."""
    allowed = expert.only(settings.allowed_ids)
    with closing(create_models(allowed, settings)) as models:
        reply = Description(allowed, models, settings).since("")
    return json_format.MessageToJson(reply, preserving_proto_field_name=True) + "\n"


@asynccontextmanager
async def serve(expert: Expert, settings: Settings) -> AsyncIterator[RunningServer]:
    """Serves the expert within the block; it becomes ready once its preloaded models are loaded.

    Raises:
        FailedPrecondition: it has none of the allowed models, or a configured device does not exist.
        Unavailable: the artifact store does not answer, or the address is in use.
    """
    started_at = time.monotonic() - time.process_time()  # the process was busy with imports until now
    expert = _configure(expert, settings)
    store = await ArtifactStore.open_when_available(settings.artifacts_url)
    isolation = replace(settings.isolation, modules=expert.isolated_modules)
    with (
        running(isolation, ahead=expert.takes_files),
        closing(create_models(expert, settings)) as models,
        closing(ThreadPool("cpu", settings.threads or default_threads(), elastic=True)) as cpu,
    ):
        await models.check_placements()
        description = Description(expert, models, settings)
        servicer = ExpertServicer(expert, models, description, Inference(cpu), store=store, settings=settings)
        register = partial(rpc.add_ExpertServiceServicer_to_server, servicer)
        async with (
            expert.connections(models.notify_change),
            serving(
                register,
                EXPERT,
                listen=settings.listen,
                drain_seconds=settings.drain_seconds,
                ready=False,
                health_listen=settings.health_listen,
            ) as server,
            _background_task(_publish_health(models, description, server)),
            _background_task(
                watch(models, server, batch_seconds=settings.device_seconds, load_seconds=_load_timeout(settings))
            ),
            _background_task(_become_ready(expert, models, description, server, started_at)),
        ):
            yield server


def _configure(expert: Expert, settings: Settings) -> Expert:
    """Returns the expert with its allowed models, loaded into worker processes if so configured."""
    allowed = expert.only(settings.allowed_ids)
    if settings.workers == "thread":
        return allowed
    workers = WorkerSettings(
        settings.threads or default_threads(),
        settings.load_seconds,
        (settings.log_level, settings.log_format),
        settings.isolation,
    )
    offers = (replace(each, loader=workers.loader(each.spec.name, each.loader)) for each in allowed.offers)
    return replace(allowed, offers=tuple(offers))


def _load_timeout(settings: Settings) -> float:
    """Returns the load duration from which the expert is not alive; worker processes have a timeout of their own."""
    return settings.load_seconds if settings.workers == "thread" else inf


def create_models(expert: Expert, settings: Settings) -> ModelManager:
    """Returns the models of an expert, with limits and devices as configured; none is loaded."""
    limits = Limits(
        settings.max_waiting,
        settings.batch_items,
        settings.batch_scale,
        settings.background_seconds,
        settings.memory_bytes,
        ComputeOptions(attention=settings.attention, tf32=settings.tf32),
    )
    return ModelManager(expert.offers, limits, devices=expert.devices, placements=settings.devices, pool=settings.pool)


async def _become_ready(
    expert: Expert, models: ModelManager, description: Description, server: RunningServer, started_at: float
) -> None:
    if not await models.preload(expert.preload):
        log.error("not ready: no model could be loaded")
        return
    description.start_duration = timedelta(seconds=time.monotonic() - started_at)
    await server.set_ready("", "startup", EXPERT.full_name)
    await server.set_ready("readiness", ready=models.is_any_available)
    log.info("ready", loaded=sorted(models.loaded), seconds=round(description.start_duration.total_seconds(), 2))


async def _publish_health(models: ModelManager, description: Description, server: RunningServer) -> None:
    """Publishes the status of each model and the readiness of the expert on grpc.health.v1.

    After the preload, the expert is ready while any of its models is available.
    """
    while True:
        models.changed.clear()
        if description.start_duration is not None:
            await server.set_ready("readiness", ready=models.is_any_available)
        for model_id in models.ids:
            await server.set_ready(model_id, ready=model_id in models.loaded)
        await models.changed.wait()


@asynccontextmanager
async def _background_task(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs a coroutine as a task for the duration of the block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
