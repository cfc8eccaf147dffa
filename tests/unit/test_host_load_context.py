"""Number type, attention kernel and TF32 of a model: the card's choice, and the operator's."""

from contextlib import closing
from dataclasses import replace

import pytest
from pydantic import ValidationError

from experts.host import load_context
from experts.host.expert import Offer
from experts.host.handler import Handler, single
from experts.host.load_context import ENGINE_CHOICE, ComputeOptions
from experts.host.model_manager import Limits, ModelManager
from experts.host.settings import Settings
from protos.hugginggpt.v1.model_pb2 import ModelCard
from protos.hugginggpt.v1.task_pb2 import TaskSpec

CARD = ComputeOptions("float16", "sdpa", tf32=True)


def test_options_of_a_card_apply_to_gpus() -> None:
    assert CARD.on("cuda:0", ENGINE_CHOICE) == CARD
    assert CARD.on("cpu", ENGINE_CHOICE) == ENGINE_CHOICE


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_options_of_the_operator_precede_the_cards(device: str) -> None:
    override = ComputeOptions("float32", "eager", tf32=False)
    assert CARD.on(device, override) == override


def test_option_that_the_operator_leaves_open_is_the_cards() -> None:
    assert CARD.on("cuda:0", ComputeOptions(attention="eager")) == replace(CARD, attention="eager")


async def test_loader_sees_the_options_of_the_operator() -> None:
    contexts: list[load_context.LoadContext] = []

    def loader(model_id: str, device: str) -> Handler:
        contexts.append(load_context.current())
        return single(lambda inputs, parameters: inputs)

    offer = Offer(TaskSpec(name="task"), ModelCard(id="m", task="task"), loader, CARD)
    limits = Limits(compute=ComputeOptions(attention="eager", tf32=False))
    with closing(ModelManager([offer], limits, placements="*=cpu:bf16")) as models:
        assert await models.preload(["m"])
    assert contexts[0].compute.dtype == "bfloat16"
    assert contexts[0].compute.attention == "eager"
    assert contexts[0].compute.tf32 is False


@pytest.mark.parametrize(("name", "value"), [("EXPERT_ATTENTION", "fast"), ("EXPERT_TF32", "sometimes")])
def test_invalid_choice_of_the_operator_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name.removeprefix("EXPERT_").lower()):
        Settings()


def test_choice_of_the_operator_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPERT_ATTENTION", "eager")
    monkeypatch.setenv("EXPERT_TF32", "true")
    settings = Settings()
    assert settings.attention == "eager"
    assert settings.tf32 is True


def test_choice_is_left_to_cards_by_default() -> None:
    settings = Settings()
    assert settings.attention == ""
    assert settings.tf32 is None
