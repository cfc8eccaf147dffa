"""The expert `llm` over gRPC: its cards, data policy, usage, and questions about documents and pictures."""

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protos.hugginggpt.v1.expert_pb2 import InferRequest
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, MODEL_LOCATION_INTERNAL, MODEL_METHOD_LLM
from tests.fakes.llm import ErrorReply, ScriptedLLM, TextReply
from tests.support.samples import sample
from tests.support.served_expert import ServedExpert, serve_expert

pytestmark = pytest.mark.usefixtures("no_llm")

Configure = Callable[..., None]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Configure:
    def set_environment(llm: ScriptedLLM, **settings: str) -> None:
        values = {"LLM_BASE_URL": llm.base_url, "LLM_MODEL": "little:7b", "LLM_RETRY_SECONDS": "0.01"}
        for name, value in (values | settings).items():
            monkeypatch.setenv(name, value)

    return set_environment


@pytest.fixture(autouse=True)
def released_engine() -> Iterator[None]:
    """Frees the OCR engine of a stopped expert, which the next one in this process would use."""
    yield
    gc.collect()


def evidence(answer: str, quoted: str) -> TextReply:
    return TextReply(json.dumps({"evidence": quoted, "answer": answer}))


async def tasks(expert: ServedExpert) -> set[str]:
    return {card.task for card in (await expert.describe()).models}


async def test_llm_is_not_offered_without_an_endpoint(tmp_path: Path) -> None:
    async with serve_expert("experts.llm", tmp_path) as expert:
        assert await tasks(expert) == set()


async def test_text_task_is_run_by_the_llm(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([TextReply("Kurz.")]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert await expert.call("summarization", model="llm/little-7b", text="Lang.") == {"text": "Kurz."}


async def test_reply_reports_the_tokens(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([TextReply("Kurz.")]) as llm:
        configure(llm, LLM_INTERNAL="true", LLM_PRICES='{"little:7b": {"input": 1000000, "output": 0}}')
        async with serve_expert("experts.llm", tmp_path) as expert:
            request = InferRequest(task="summarization")
            request.inputs["text"].text = "Lang."
            usage = (await expert.stub.Infer(request, timeout=20)).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0
    assert usage.cost == usage.input_tokens


@pytest.mark.parametrize(
    ("internal", "location"), [("true", MODEL_LOCATION_INTERNAL), ("false", MODEL_LOCATION_EXTERNAL)]
)
async def test_location_is_that_of_the_endpoint(
    tmp_path: Path, configure: Configure, internal: str, location: int
) -> None:
    async with ScriptedLLM.serving([]) as llm:
        configure(llm, LLM_INTERNAL=internal)
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert (await expert.card("summarization")).location == location


async def test_cards_rank_as_those_of_the_llm(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert {card.method for card in (await expert.describe()).models} == {MODEL_METHOD_LLM}


async def test_internal_endpoint_gets_requests_of_the_policy_local(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([TextReply("Kurz.")]) as llm:
        configure(llm, LLM_INTERNAL="true")
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert await expert.call("summarization", text="Lang.", local=True) == {"text": "Kurz."}


@pytest.mark.parametrize("task", ["summarization", "document-question-answering"])
async def test_external_endpoint_gets_nothing_under_the_policy_local(
    tmp_path: Path, configure: Configure, task: str
) -> None:
    inputs = {"text": "x"} if task == "summarization" else {"image": sample("letter.pdf"), "question": "Who?"}
    async with ScriptedLLM.serving([]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            error = await expert.call_error(task, local=True, **inputs)
        assert error.reason == "POLICY"
        assert "LLM_INTERNAL=true" in error.remedy
        assert llm.requests == []


async def test_role_has_settings_of_its_own(
    tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedLLM.serving([]) as llm:
        configure(llm)
        monkeypatch.setenv("EXPERT_LLM_MODEL", "other")
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert (await expert.card("summarization")).id == "llm/other"


async def test_refused_key_leaves_the_task_to_other_models(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([ErrorReply(401)]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            error = await expert.call_error("summarization", text="x")
    assert error.reason == "LOAD_FAILED"


async def test_document_question_gets_pages_with_their_numbers(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([evidence("?", "words that are not there")] * 2) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("letter.pdf")
            outputs = await expert.call("document-question-answering", image=image, question="Who signed it?")
        sent = llm.requests[0]["messages"][-1]["content"]
    assert "[page 1]\n" in sent
    assert "[page 2]\n" in sent
    assert "The question: Who signed it?" in sent
    assert outputs["text"] == "I found no answer to “Who signed it?” in letter.pdf."


async def test_answer_names_the_page_of_its_evidence(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving(lambda body: evidence("yes", last_line(body))) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("letter.pdf")
            outputs = await expert.call("document-question-answering", image=image, question="Is there an end?")
    assert outputs["details"]["page"] == 2


def last_line(body: Any) -> str:
    """The last line of the document in a prompt."""
    document, _, _ = body["messages"][-1]["content"].partition("\n\nThe question:")
    return str(document.strip().splitlines()[-1])


async def test_text_of_a_picture_is_recognized_first(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([evidence("INV-2024-0117", "INV-2024-0117")]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("invoice.png")
            outputs = await expert.call("document-question-answering", image=image, question="Which number?")
        assert "691.74" in llm.requests[0]["messages"][-1]["content"]
    assert outputs["details"]["page"] == 1
    assert outputs["details"]["score"] == 1


async def test_pictures_are_not_offered_to_a_model_that_does_not_see(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            offered = await tasks(expert)
    assert "document-question-answering" in offered
    assert offered.isdisjoint({"image-to-text", "visual-question-answering"})


async def test_model_that_sees_describes_pictures(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([TextReply("A red ellipse.")]) as llm:
        configure(llm, LLM_VISION="true")
        async with serve_expert("experts.llm", tmp_path) as expert:
            assert (await expert.call("image-to-text", image=sample("apple.png")))["text"] == "A red ellipse."
        (image,) = llm.requests[0]["messages"][-1]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


async def test_model_that_sees_answers_questions_about_pictures(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([TextReply("red")]) as llm:
        configure(llm, LLM_VISION="true")
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("apple.png")
            outputs = await expert.call("visual-question-answering", image=image, question="Which colour?")
    assert outputs["answers"] == [{"answer": "red", "score": 1.0}]


async def test_model_that_sees_gets_the_page_and_its_text(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([evidence("INV-2024-0117", "INV-2024-0117")]) as llm:
        configure(llm, LLM_VISION="true")
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("invoice.png")
            await expert.call("document-question-answering", image=image, question="Which number?")
        picture, text = llm.requests[0]["messages"][-1]["content"]
    assert picture["type"] == "image_url"
    assert "INV-2024-0117" in text["text"]


async def test_picture_without_text_is_declined_without_a_call(tmp_path: Path, configure: Configure) -> None:
    async with ScriptedLLM.serving([]) as llm:
        configure(llm)
        async with serve_expert("experts.llm", tmp_path) as expert:
            image = sample("apple.png")
            outputs = await expert.call("document-question-answering", image=image, question="Who signed it?")
        assert outputs["text"] == "I found no answer to “Who signed it?” in apple.png."
        assert llm.requests == []
