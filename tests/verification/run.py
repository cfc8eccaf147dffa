"""Runs the golden case of a card with its real weights, in a process of its own."""

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path

import grpc
from huggingface_hub import HfApi, constants

from experts.host.app import serve
from experts.host.devices import Placements
from experts.host.expert import Expert, Offer, read_expert
from experts.host.prefetch import prefetch
from experts.host.settings import Settings
from experts.torch_host.settings import SourceSettings
from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1.model_pb2 import ModelCard
from services.common import errors, logging
from services.common.artifacts import ArtifactStore
from services.common.channel import dial
from tests.tiny import ExpertClient
from tests.verification.cards import Measurement
from tests.verification.cases import Case

CALL_SECONDS = 3600.0
"""Timeout of a case: a video takes an hour without a GPU."""

FindCase = Callable[[str, str], Case]
"""Returns the case of a task and a model id."""


@dataclass(frozen=True)
class Outcome:
    """What the verification of one card has shown."""

    package: str
    task: str
    model_id: str
    seconds: float
    error: str = ""
    """Why it failed; empty if the property holds."""
    measurement: Measurement | None = None
    """None if it failed."""


def verify(package: str, model_id: str, find_case: FindCase) -> Iterator[Outcome]:
    """Verifies the cards of an expert one after the other; an empty model id selects all.

    Each has a process of its own: one that runs out of memory ends only its own case.
    """
    for offer in read_expert(package).offers:
        if model_id in ("", offer.card.id):
            yield _in_process(package, offer, find_case(offer.card.task, offer.card.id))


def _in_process(package: str, offer: Offer, case: Case) -> Outcome:
    task, model_id, start = offer.card.task, offer.card.id, time.monotonic()
    outcome = partial(Outcome, package, task, model_id)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            measurement, error = pool.submit(_run_case, package, task, model_id, case).result()
        except BrokenProcessPool:
            return outcome(time.monotonic() - start, "its process ended abruptly: the machine has too little memory")
    return outcome(time.monotonic() - start, error, None if error else measurement)


def _run_case(package: str, task: str, model_id: str, case: Case) -> tuple[Measurement | None, str]:
    """Returns the measurement of a model, or why its case failed."""
    logging.setup("verification", level=Settings().log_level, style=Settings().log_format)
    offer = read_expert(package).find(task, model_id)
    expert = Expert(package, (offer,), devices=import_module(f"{package}.tasks").DEVICES)
    prefetch(expert, Placements(Settings().devices))  # what fails here fails again in the call, which reports it
    try:
        card, error = asyncio.run(_call(expert, case))
    except grpc.aio.AioRpcError as raised:
        failure = errors.from_rpc(raised)
        return None, f"{failure.message}; {failure.remedy}".rstrip("; ")
    return (None, error) if error else (_measure(card, expert), "")


async def _call(expert: Expert, case: Case) -> tuple[ModelCard, str]:
    """Returns the card after the call, and why the outputs do not have the expected property."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder).as_uri()
        settings = Settings.model_validate({"listen": "127.0.0.1:0", "drain_seconds": 0, "ARTIFACTS_URL": store})
        async with serve(expert, settings) as running, dial(f"127.0.0.1:{running.port}") as channel:
            client = ExpertClient(channel, ArtifactStore.open(store), CALL_SECONDS)
            task = expert.offers[0].card.task
            outputs = [await client.call(task, inputs, **case.parameters) for inputs in case.read_inputs()]
            described = await client.stub.Describe(pb.DescribeRequest())
    if case.expected.holds(*outputs):
        return described.models[0], ""
    excerpts = " and ".join(map(_excerpt, outputs))
    return described.models[0], f"expected: {case.expected.description}; outputs: {excerpts}"


def _excerpt(outputs: object) -> str:
    return str(outputs)[:200]


def _measure(card: ModelCard, expert: Expert) -> Measurement:
    engine = expert.devices
    device = Placements(Settings().devices).of(card.id).device
    if engine and device == "auto":
        device = engine.devices()[0]
    return Measurement(
        date=datetime.now(UTC).date().isoformat(),
        device=engine.product(device) if engine and device.startswith("cuda") else device,
        download_bytes=_download_bytes(card),
        loaded_bytes=card.loaded_bytes,
        commit=card.revision if _is_from_hub(card) else "",
        license=_license(card.id) if _is_from_hub(card) else "",
    )


def _is_from_hub(card: ModelCard) -> bool:
    """Whether the model is in the cache of the Hub's client at its commit; some cards have no repository."""
    return bool(card.revision) and not SourceSettings().models_url and _snapshot(card) is not None


def _snapshot(card: ModelCard) -> Path | None:
    folder = Path(constants.HF_HUB_CACHE) / f"models--{card.id.replace('/', '--')}" / "snapshots" / card.revision
    return folder if folder.is_dir() else None


def _download_bytes(card: ModelCard) -> int:
    folder = _snapshot(card)
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors")) if folder else 0


def _license(model_id: str) -> str:
    facts = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None).model_info(model_id).card_data
    if not facts:
        return ""
    named = facts.get("license_name") if facts.get("license") == "other" else facts.get("license")
    return str(named or "")
