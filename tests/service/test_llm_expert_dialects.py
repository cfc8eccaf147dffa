"""How language models answer tasks: well-behaved and badly behaved replies, and what becomes of each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from experts.host.active_calls import ActiveCall, ActiveCalls
from experts.llm.model import LlmConnection, LlmModel
from protos.hugginggpt.v1.caller_pb2 import DATA_POLICY_OPEN, Caller
from services.common import call_context
from services.common.errors import CorruptData, ModelFailed, ServiceError
from tests.fakes.llm import ScriptedLLM, ScriptedReply, TextReply, TruncatedReply
from tests.fakes.llm.client import settings

LETTER = "Dear Ms Weber,\nthe bridge opens on 3 May 2024. The toll is “four euros”.\nYours, Ada Lovelace"
CUT = TextReply('{"evidence": "the bridge opens on', finish="length")
REFUSAL = TextReply("I'm sorry, but I can't help with that.")
EMPTY = TextReply("")


def evidence(answer: Any, quoted: Any) -> str:
    return json.dumps({"evidence": quoted, "answer": answer})


def scores(**by_label: Any) -> str:
    return json.dumps(by_label)


def entities(*pairs: tuple[str, str]) -> str:
    return json.dumps({"entities": [{"text": text, "entity": kind} for text, kind in pairs]})


class Case(NamedTuple):
    """Replies of the LLM to one call, and its outcome: the text that it returns, or the error."""

    name: str
    replies: Sequence[ScriptedReply | str]
    expected: str | type[ServiceError]


INPUTS: Mapping[str, Mapping[str, Any]] = {
    "question-answering": {"question": "When does the bridge open?", "context": LETTER},
    "summarization": {"text": LETTER},
    "translation": {"text": "Guten Tag!"},
    "text-generation": {"text": "Write a greeting."},
    "zero-shot-classification": {"text": "They won the match."},
    "token-classification": {"text": "Ada met Bob in Bonn. Ada left."},
}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "zero-shot-classification": {"candidate_labels": ["sports", "politics"], "multi_label": False},
    "translation": {"target_language": "English"},
}

DATE = evidence("3 May 2024", "the bridge opens on 3 May 2024")
INVENTED = evidence("4 June", "the bridge opens on 4 June")
DECLINED = "I found no answer to “When does the bridge open?”."
SPORTS = scores(sports=0.9, politics=0.1)
NAMES = entities(("Ada", "PER"), ("Bob", "PER"), ("Bonn", "LOC"), ("Ada", "PER"))
NAMED = "Ada: PER\nBob: PER\nBonn: LOC\nAda: PER"

CASES: Mapping[str, Sequence[Case]] = {
    "question-answering": [
        Case("well-behaved", [DATE], "3 May 2024"),
        Case("chatty", [f"Sure! The answer is {{below}}:\n{DATE}\nAnything else?"], "3 May 2024"),
        Case("fenced", [f"```json\n{DATE}\n```"], "3 May 2024"),
        Case("reasoning first", [f'<think>{{"answer": "4 June"}}?</think>{DATE}'], "3 May 2024"),
        Case("quoted over a line end", [evidence("3 May", "Weber, the bridge opens on 3 May")], "3 May"),
        Case("other quotation marks", [evidence("four euros", 'The toll is "four euros"')], "four euros"),
        Case("an ellipsis", [evidence("3 May 2024", "the bridge … 3 May 2024")], "3 May 2024"),
        Case("a number", [evidence(4, "four euros")], "4"),
        Case("no answer", [evidence("", "")], DECLINED),
        Case("no evidence, then some", [evidence("3 May 2024", ""), DATE], "3 May 2024"),
        Case("invented, then right", [INVENTED, DATE], "3 May 2024"),
        Case("invented twice", [INVENTED, INVENTED], DECLINED),
        Case("part of a word", [evidence("toll", "he toll"), evidence("toll", "he toll")], DECLINED),
        Case("words in another order", [evidence("3", "2024 May 3"), evidence("3", "2024 May 3")], DECLINED),
        Case("wrong names, then right", ['{"reply": "3 May"}', DATE], "3 May 2024"),
        Case("a bare answer twice", ["3 May 2024", "3 May 2024"], CorruptData),
        Case("cut off, then right", [CUT, DATE], "3 May 2024"),
        Case("cut off twice", [CUT, CUT], CorruptData),
        Case("cut off by the connection, then right", [TruncatedReply(DATE[:20]), DATE], "3 May 2024"),
        Case("refusal twice", [REFUSAL, REFUSAL], CorruptData),
        Case("empty, then right", [EMPTY, DATE], "3 May 2024"),
        Case("empty twice", [EMPTY, EMPTY], ModelFailed),
        Case("deeply nested twice", ['{"a":' * 5000, '{"a":' * 5000], CorruptData),
    ],
    "summarization": [
        Case("well-behaved", ["The bridge opens in May."], "The bridge opens in May."),
        Case("chatty", ["Here is a summary:\n\nIt opens.\n\nLet me know if you need more!"], "It opens."),
        Case("fenced", ["```\nIt opens.\n```"], "It opens."),
        Case("reasoning first", ["<think>Hm.</think>It opens."], "It opens."),
        Case("refusal, then right", [REFUSAL, "It opens."], "It opens."),
        Case("refusal twice", [REFUSAL, REFUSAL], CorruptData),
        Case("cut off twice", [TextReply("It", finish="length")] * 2, CorruptData),
        Case("empty twice", [EMPTY, EMPTY], ModelFailed),
        Case("only reasoning twice", ["<think>Hm.</think>"] * 2, CorruptData),
    ],
    "translation": [
        Case("well-behaved", ["Good day!"], "Good day!"),
        Case("chatty", ["Sure, here is the translation:\nGood day!"], "Good day!"),
        Case("a closing remark of the text", ["Good day!\n\nLet me know."], "Good day!\n\nLet me know."),
        Case("refusal twice", [REFUSAL, REFUSAL], CorruptData),
        Case("cut off, then right", [TextReply("Good", finish="length"), "Good day!"], "Good day!"),
    ],
    "text-generation": [
        Case("well-behaved", ["Hello!"], "Hello!"),
        Case("a text that begins like a refusal", ["I cannot come."], "I cannot come."),
        Case("empty twice", [EMPTY, EMPTY], ModelFailed),
    ],
    "zero-shot-classification": [
        Case("well-behaved", [SPORTS], "sports"),
        Case("chatty", [f"It is about sports.\n\n{SPORTS}"], "sports"),
        Case("fenced", [f"```json\n{SPORTS}\n```"], "sports"),
        Case("another label, then right", [scores(sports=0.5, politics=0, football=0.9), SPORTS], "sports"),
        Case("another label twice", [scores(football=1)] * 2, CorruptData),
        Case("a label missing, then right", [scores(sports=1), SPORTS], "sports"),
        Case("words for numbers twice", [scores(sports="high", politics="low")] * 2, CorruptData),
        Case("a bare label, then right", ["sports", SPORTS], "sports"),
        Case("refusal twice", [REFUSAL, REFUSAL], CorruptData),
    ],
    "token-classification": [
        Case("well-behaved", [NAMES], NAMED),
        Case("chatty", [f"The names are:\n{NAMES}\nThat is all."], NAMED),
        Case("long names of kinds", [NAMES.replace("PER", "Person").replace("LOC", "location")], NAMED),
        Case("a name too often", [entities(("Bob", "PER"), ("Bob", "PER"))], "Bob: PER"),
        Case("nothing", [entities()], "Nothing found."),
        Case("words that are not there, then right", [entities(("Berlin", "LOC")), NAMES], NAMED),
        Case("words that are not there twice", [entities(("Bob", "PER"), ("Berlin", "LOC"))] * 2, CorruptData),
        Case("unknown kinds twice", [entities(("Ada", "HERO"))] * 2, CorruptData),
        Case("a list of texts twice", ['{"entities": ["Ada"]}'] * 2, CorruptData),
        Case("cut off, then right", [TextReply(NAMES[:40], finish="length"), NAMES], NAMED),
    ],
}


async def run(llm: ScriptedLLM, task: str, **overrides: Any) -> tuple[Mapping[str, Any], ActiveCall]:
    """Runs a task with the inputs above; returns its outputs and the call."""
    connection = LlmConnection(settings(llm, **{"internal": False, **overrides}))
    model = LlmModel(task, connection)
    caller = Caller(tenant="default", policy=DATA_POLICY_OPEN)
    async with connection.open():
        with call_context.use_caller(caller), ActiveCalls().track("default", "c") as call:
            item = model.prepare(INPUTS[task], PARAMETERS.get(task, {}))
            return model.finish(await model.infer(item, call)), call


def scripted(replies: Sequence[ScriptedReply | str]) -> list[ScriptedReply]:
    return [TextReply(reply) if isinstance(reply, str) else reply for reply in replies]


@pytest.mark.parametrize(
    ("task", "case"),
    [pytest.param(task, case, id=f"{task}: {case.name}") for task, cases in CASES.items() for case in cases],
)
async def test_dialect_gives_the_text_or_the_error(task: str, case: Case) -> None:
    async with ScriptedLLM.serving(scripted(case.replies)) as llm:
        if isinstance(case.expected, str):
            assert (await run(llm, task))[0]["text"] == case.expected
        else:
            with pytest.raises(case.expected):
                await run(llm, task)
        assert len(llm.requests) == len(case.replies)


async def test_answer_states_its_span_and_evidence() -> None:
    async with ScriptedLLM.serving([TextReply(DATE)]) as llm:
        details = (await run(llm, "question-answering"))[0]["details"]
    assert LETTER[details["start"] : details["end"]] == "3 May 2024"
    assert details["evidence"] == "the bridge opens on 3 May 2024"


async def test_second_call_states_what_was_wrong() -> None:
    async with ScriptedLLM.serving([TextReply(INVENTED), TextReply(DATE)]) as llm:
        await run(llm, "question-answering")
        *_, repeated, complaint = llm.requests[1]["messages"]
    assert repeated["content"] == INVENTED
    assert "evidence that is not in the text" in complaint["content"]


async def test_tokens_of_both_calls_count() -> None:
    async with ScriptedLLM.serving([TextReply(INVENTED), TextReply(INVENTED)]) as llm:
        _, call = await run(llm, "question-answering", prices={"m": {"input": 1e6, "output": 0}})
    assert call.llm_usage.output_tokens > 0
    assert call.llm_usage.cost == call.llm_usage.input_tokens


async def test_context_that_is_too_long_loses_passages_without_words_of_the_question() -> None:
    filler = "\n\n".join(f"Paragraph {number} is about fishing in the old harbour." for number in range(300))
    context = f"{filler}\n\n{LETTER}\n\n{filler}"
    async with ScriptedLLM.serving([TextReply(DATE)]) as llm:
        connection = LlmConnection(settings(llm, context_tokens=2000, answer_tokens=100))
        model = LlmModel("question-answering", connection)
        async with connection.open():
            with ActiveCalls().track("default", "c") as call:
                item = model.prepare({"question": "When does the bridge open?", "context": context}, {})
                details = (await model.infer(item, call))["details"]
        sent = llm.requests[0]["messages"][-1]["content"]
    assert len(sent) < len(context) / 2
    assert context[details["start"] : details["end"]] == "3 May 2024"


async def test_text_that_exceeds_the_context_is_left_to_other_models() -> None:
    async with ScriptedLLM.serving([]) as llm:
        with pytest.raises(ModelFailed, match="too long"):
            await run(llm, "summarization", context_tokens=512, answer_tokens=480)
        assert llm.requests == []


async def test_limit_set_by_the_caller_may_end_a_text() -> None:
    async with ScriptedLLM.serving([TextReply("Hello and", finish="length")]) as llm:
        connection = LlmConnection(settings(llm))
        model = LlmModel("text-generation", connection)
        async with connection.open():
            with ActiveCalls().track("default", "c") as call:
                item = model.prepare({"text": "Write."}, {"max_new_tokens": 2})
                assert await model.infer(item, call) == {"text": "Hello and"}
        assert llm.requests[0]["max_tokens"] == 2
