"""Share of offline throughput that the host serves with transformers models: a small BERT and ViT on one core."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.artifacts import ArtifactStore
from tests.bench.expert_callers import ExpertCaller, open_channel
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.processes import printed, service
from tests.bench.rows import Row, gap
from tests.bench.small_models import tasks as small_models

ROUNDS = 2
CALLS = 8 * small_models.ITEMS


async def rows() -> list[Row]:
    if not find_spec("torch"):
        why = "torch is not installed: pip install 'hugginggpt[text,vision]'"
        return [gap(_name(model), "", 0.9, why, at_least=True) for model in small_models.TASK_OF]
    with TemporaryDirectory() as home:
        models, store = Path(home) / "models", (Path(home) / "artifacts").as_uri()
        os.environ.update(ONE_CORE, EXPERT_MODELS_URL=models.as_uri(), ARTIFACTS_URL=store)
        await printed("tests.bench.small_models.build", models, hide_stderr=True)
        async with (
            service("tests.bench.small_models", "EXPERT", Path(home), max_waiting="256") as expert,
            open_channel(expert.address) as channel,
        ):
            text, image = Value(text=small_models.text()), await _image(store)
            inputs = {small_models.BERT: {"text": text}, small_models.VIT: {"image": image}}
            return [await _share(channel, model, values) for model, values in inputs.items()]


async def _share(channel: grpc.aio.Channel, model: str, inputs: Mapping[str, Value]) -> Row:
    """Alternates between served and offline runs, so that a slow machine affects both."""
    caller = ExpertCaller(channel, model, task=small_models.TASK_OF[model], inputs=inputs)
    await caller.run_sequentially(3)
    shares, served, offline = [], 0.0, 0.0
    for _ in range(ROUNDS):
        offline = small_models.ITEMS / float(await printed("tests.bench.small_models.tasks", model, hide_stderr=True))
        served = await per_second(caller.call, callers=CALLERS, count=CALLS)
        shares.append(served / offline)
    batches = f"in batches of {small_models.ITEMS}"
    note = f"of {offline:.0f} a second offline, {batches}; {CALLERS} callers, {served:.0f} calls/s"
    return Row(_name(model), round(max(shares), 3), "", 0.9, at_least=True, note=note)


def _name(model: str) -> str:
    return f"host.{model.rpartition('/')[2]}_throughput_share"


async def _image(store: str) -> Value:
    content = small_models.picture()
    artifact = await ArtifactStore.open(store).put("default", content, media_type="image/png", name="gradient.png")
    return Value(artifact=artifact)
