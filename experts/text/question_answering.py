"""Answers to questions: the stretch of a given text that answers them, wherever in it that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Reader, Window
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import pad_rows, run_in_passes
from experts.torch_host.torch_handler import TorchHandler

NO_ANSWER = "The text does not say."
LONGEST_ANSWER = 30
"""In tokens."""


@dataclass(frozen=True)
class Asked:
    """One caller's question, beside each window of the text."""

    context: str
    windows: list[Window]


@dataclass(frozen=True)
class Span:
    """The likeliest answer in one window, against there being none."""

    start: int
    end: int
    logit: float
    score: float
    none: float
    """The logit of no answer."""


def question_answering(model_id: str, device: str) -> Handler:
    """Any model with a head for spans."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForQuestionAnswering)
    return Answerer(checkpoint, model, Reader(tokenizer, model, model_id, keep_second_whole=False))


class Answerer(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, reader: Reader) -> None:
        super().__init__(checkpoint, model)
        self._reader = reader

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Asked:  # noqa: ARG002  # it has none
        question, context = inputs["question"], inputs["context"]
        self._reader.check_short(question, "question")
        return Asked(context, self._reader.windows(question, context, "context"))

    def cost(self, item: Asked) -> float:
        return sum(window.length for window in item.windows)

    def run(self, items: Sequence[Asked], call: Call) -> list[tuple[list[Span], Asked]]:
        def compute(windows: Sequence[Window]) -> list[Span]:
            batch = pad_rows([window.row for window in windows], self._reader.pad_id)
            with inference_context(self.model_id):
                output = self.model(**move_to_device(batch, self.model))
                starts, ends = output.start_logits.float().cpu(), output.end_logits.float().cpu()
            return [_span(*row) for row in zip(windows, starts, ends, strict=True)]

        spans = run_in_passes([item.windows for item in items], lambda window: window.length, compute, call)
        return list(zip(spans, items, strict=False))

    def finish(self, raw: tuple[list[Span], Asked]) -> Outputs:
        spans, item = raw
        best = max(spans, key=lambda span: span.logit)
        if best.start == best.end or min(span.none for span in spans) > best.logit:
            return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "start": 0, "end": 0}}
        answer = item.context[best.start : best.end]
        details = {"answer": answer, "score": round(best.score, DIGITS), "start": best.start, "end": best.end}
        return {"text": " ".join(answer.split()), "details": details}


def _span(window: Window, starts: Any, ends: Any) -> Span:
    """The pair of start and end with the highest logits together, among the tokens of the context."""
    import torch

    length = window.length
    context = torch.tensor([part == 1 for part in window.parts])
    first = starts[:length].masked_fill(~context, -torch.inf)
    last = ends[:length].masked_fill(~context, -torch.inf)
    allowed = torch.ones(length, length, dtype=torch.bool).triu().tril(LONGEST_ANSWER - 1)
    both = (first[:, None] + last[None, :]).masked_fill(~allowed, -torch.inf)
    start, end = divmod(int(both.argmax()), length)
    everything = torch.logsumexp(starts[:length], 0) + torch.logsumexp(ends[:length], 0)
    logit = first[start] + last[end]
    place = window.offsets[start][0], window.offsets[end][1]
    return Span(*place, float(logit), float((logit - everything).exp()), none=float(starts[0] + ends[0]))
