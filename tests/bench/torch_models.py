"""How busy the host keeps models of transformers: a small BERT and ViT, on one core, beside the same offline."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc

from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.artifacts import ArtifactStore
from tests.bench.expert_callers import Asker, reaching
from tests.bench.host import CALLERS, ONE_CORE
from tests.bench.load import per_second
from tests.bench.processes import printed, service
from tests.bench.rows import Row, gap
from tests.bench.sized import tasks as sized

ROUNDS = 2
CALLS = 8 * sized.ITEMS


async def rows() -> list[Row]:
    if not find_spec("torch"):
        why = "torch is not installed: pip install 'hugginggpt[text,vision]'"
        return [gap(_name(model), "", 0.9, why, at_least=True) for model in sized.TASK_OF]
    with TemporaryDirectory() as home:
        models, store = Path(home) / "models", (Path(home) / "artifacts").as_uri()
        os.environ.update(ONE_CORE, EXPERT_MODELS_URL=models.as_uri(), ARTIFACTS_URL=store)
        await printed("tests.bench.sized.build", models, quietly=True)
        async with (
            service("tests.bench.sized", "EXPERT", Path(home), max_waiting="256") as expert,
            reaching(expert.address) as channel,
        ):
            given = {sized.BERT: {"text": Value(text=sized.text())}, sized.VIT: {"image": await _picture(store)}}
            return [await _share(channel, model, inputs) for model, inputs in given.items()]


async def _share(channel: grpc.aio.Channel, model: str, inputs: Mapping[str, Value]) -> Row:
    """Served and offline take turns, so that a slow minute of the machine is both's."""
    asker = Asker(channel, model, task=sized.TASK_OF[model], inputs=inputs)
    await asker.in_turn(3)
    shares, served, offline = [], 0.0, 0.0
    for _ in range(ROUNDS):
        offline = sized.ITEMS / float(await printed("tests.bench.sized.tasks", model, quietly=True))
        served = await per_second(asker.ask, callers=CALLERS, count=CALLS)
        shares.append(served / offline)
    note = f"of {offline:.0f} a second offline, in batches of {sized.ITEMS}; {CALLERS} callers, {served:.0f} calls/s"
    return Row(_name(model), round(max(shares), 3), "", 0.9, at_least=True, note=note)


def _name(model: str) -> str:
    return f"host.{model.rpartition('/')[2]}_throughput_share"


async def _picture(store: str) -> Value:
    content = sized.picture()
    artifact = await ArtifactStore.open(store).put("default", content, media_type="image/png", name="gradient.png")
    return Value(artifact=artifact)
