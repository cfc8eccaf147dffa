"""Extractive question answering: the span of a given text that answers a question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import NO_ANSWER, Call, Handler, Inputs, Outputs, Parameters
from experts.text.token_windows import Window, WindowTokenizer
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS
from experts.torch_host.devices import inference_context
from experts.torch_host.generation import move_to_device
from experts.torch_host.padding import launch_passes, pad_rows
from experts.torch_host.torch_handler import ReadResults, TorchHandler, copy_to_host

if TYPE_CHECKING:
    import torch

MAX_ANSWER_TOKENS = 30
"""Maximum length of an answer, in tokens."""


@dataclass(frozen=True)
class QuestionItem:
    """Question of one call, with the windows of its text."""

    context: str
    windows: list[Window]


@dataclass(frozen=True)
class AnswerSpan:
    """Most likely answer in one window, with the logit of there being no answer."""

    start: int
    end: int
    logit: float
    score: float
    no_answer_logit: float


def question_answering(model_id: str, device: str) -> Handler:
    """Loads a model with a head for spans."""
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    tokenizer = checkpoint.processor(AutoTokenizer)
    model = checkpoint.model(AutoModelForQuestionAnswering)
    return QuestionAnswerer(checkpoint, model, WindowTokenizer(tokenizer, model, model_id, cut_first=False))


class QuestionAnswerer(TorchHandler):
    def __init__(self, checkpoint: Checkpoint, model: Any, window_tokenizer: WindowTokenizer) -> None:
        super().__init__(checkpoint, model)
        self._window_tokenizer = window_tokenizer

    def prepare(self, inputs: Inputs, parameters: Parameters) -> QuestionItem:  # noqa: ARG002  # the task has none
        question, context = inputs["question"], inputs["context"]
        self._window_tokenizer.check_length(question, "question")
        return QuestionItem(context, self._window_tokenizer.split(question, context, "context"))

    def cost(self, item: QuestionItem) -> float:
        return sum(window.length for window in item.windows)

    def compute(self, items: Sequence[QuestionItem], call: Call) -> ReadResults:
        def forward(windows: Sequence[Window]) -> "tuple[torch.Tensor, torch.Tensor]":
            batch = pad_rows([window.row for window in windows], self._window_tokenizer.pad_id)
            with inference_context(self.model_id):
                output = self.model(**move_to_device(batch, self.model))
                return copy_to_host(output.start_logits), copy_to_host(output.end_logits)

        windows = [item.windows for item in items]
        passes = launch_passes(windows, lambda window: window.length, forward, call, max_tokens=self.max_pass_tokens)

        def read() -> list[tuple[list[AnswerSpan], QuestionItem]]:
            spans = passes.read(
                lambda windows, logits: [_best_span(*row) for row in zip(windows, *logits, strict=True)]
            )
            return list(zip(spans, items, strict=False))

        return read

    def finish(self, raw: tuple[list[AnswerSpan], QuestionItem]) -> Outputs:
        spans, item = raw
        best = max(spans, key=lambda span: span.logit)
        if best.start == best.end or min(span.no_answer_logit for span in spans) > best.logit:
            return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "start": 0, "end": 0}}
        answer = item.context[best.start : best.end]
        details = {"answer": answer, "score": round(best.score, DIGITS), "start": best.start, "end": best.end}
        return {"text": " ".join(answer.split()), "details": details}


def _best_span(window: Window, starts: Any, ends: Any) -> AnswerSpan:
    """Returns the span of context tokens with the highest sum of start and end logits."""
    import torch

    length = window.length
    context = torch.tensor([part == 1 for part in window.parts])
    first = starts[:length].masked_fill(~context, -torch.inf)
    last = ends[:length].masked_fill(~context, -torch.inf)
    allowed = torch.ones(length, length, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    sums = (first[:, None] + last[None, :]).masked_fill(~allowed, -torch.inf)
    start, end = divmod(int(sums.argmax()), length)
    total = torch.logsumexp(starts[:length], 0) + torch.logsumexp(ends[:length], 0)
    logit = first[start] + last[end]
    characters = window.offsets[start][0], window.offsets[end][1]
    return AnswerSpan(
        *characters, float(logit), float((logit - total).exp()), no_answer_logit=float(starts[0] + ends[0])
    )
