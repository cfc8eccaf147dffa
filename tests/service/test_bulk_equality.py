"""Results of torch models in bulk jobs equal those of the expert's server, for tiny weights under real ids."""

import json
from pathlib import Path

import pytest

from protos.hugginggpt.v1 import expert_pb2 as pb
from protos.hugginggpt.v1 import expert_pb2_grpc as rpc
from protos.hugginggpt.v1.artifact_pb2 import Value
from services.common.channel import dial
from tests.service.test_text_process import SENTIMENT, start_process
from tests.support.bulk import CLASSIFY, read_table, run_job
from tests.tiny import TinyModels
from tests.tiny.text_examples import SENTIMENT as TEXTS

pytestmark = pytest.mark.slow

PLAN = [{"id": 1, "task": "text-classification", "args": {"text": {"input": "review"}}, "model": SENTIMENT}]


async def test_results_equal_those_of_the_server(tiny_models: TinyModels, tmp_path: Path) -> None:
    models, reviews = tmp_path / "models", tmp_path / "in"
    (models / SENTIMENT).parent.mkdir(parents=True)
    (models / SENTIMENT).symlink_to(tiny_models.build("text", "tiny/sentiment"))
    reviews.mkdir()
    for index, text in enumerate(TEXTS):
        (reviews / f"{index}.txt").write_text(text)
    served = {}
    async with start_process(tmp_path, models) as (_, address), dial(address) as channel:
        for index, text in enumerate(TEXTS):
            request = pb.InferRequest(task="text-classification", model=SENTIMENT, inputs={"text": Value(text=text)})
            reply = await rpc.ExpertServiceStub(channel).Infer(request, timeout=60, wait_for_ready=True)
            served[f"{index}.txt"] = reply
    environment = {"EXPERT_MODELS_URL": str(models), "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    job = run_job(
        tmp_path,
        [reviews],
        tmp_path / "out",
        environment,
        pipeline={**CLASSIFY, "plan": PLAN},
        experts=["text"],
    )
    assert job.status == 0, job.errors
    rows = read_table(tmp_path / "out")
    assert rows.keys() == served.keys()
    for name, reply in served.items():
        assert rows[name]["text"] == reply.outputs["text"].text
        assert json.loads(rows[name]["labels"]) == json.loads(reply.outputs["labels"].json)
