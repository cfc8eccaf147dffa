"""Questions about pictures: answered by choosing among known answers (ViLT) or in the model's own words (BLIP)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import label_names, to_probabilities, top_labels
from experts.torch_host.padding import pad_rows
from experts.torch_host.token_limits import max_input_tokens
from experts.vision.image_batches import Seen, Viewer, alike, stacked
from experts.vision.question_input import check_count, short
from experts.vision.text_generation import Written, text_of, written

if TYPE_CHECKING:
    import torch

_LONGEST_ANSWER = 32

Answers = list[dict[str, Any]]


def visual_question_answering(model_id: str, device: str) -> Handler:
    """ViLT or BLIP."""
    from transformers import AutoImageProcessor, AutoModelForVisualQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    model = checkpoint.model(AutoModelForVisualQuestionAnswering)
    processor = checkpoint.processor(AutoImageProcessor)
    kind = Choosing if model.config.model_type == "vilt" else Telling
    return kind(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


@dataclass(frozen=True)
class Asked(Seen):
    """A picture and a question about it."""

    question: Mapping[str, list[int]]


class Answering(Viewer):
    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self.tokenizer, self._longest = tokenizer, max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Asked:
        question = dict(self.tokenizer(short(inputs["question"], self._longest, self.model_id)))
        check_count(len(question["input_ids"]), self._longest, self.model_id)
        seen = super().prepare(inputs, parameters)
        return Asked(seen.scene, seen.tensors, parameters, question)

    def asked(self, items: Sequence[Any]) -> "dict[str, torch.Tensor]":
        return pad_rows([item.question for item in items], self.tokenizer.pad_token_id)

    def finish(self, raw: Answers) -> Outputs:
        return {"text": raw[0]["answer"], "answers": raw}


class Choosing(Answering):
    def look(self, items: Sequence[Seen]) -> list[Answers]:
        """Several answers may be right."""
        rows = to_probabilities(self.computed(items, **self.asked(items)).logits, multi_label=True)
        labels = label_names(self.model.config)
        return [
            [
                {"answer": one["label"], "score": one["score"]}
                for one in top_labels(scores, labels, item.parameters["top_k"])
            ]
            for scores, item in zip(rows, items, strict=True)
        ]


class Telling(Answering):
    def run(self, items: Sequence[Seen], call: Call) -> list[Answers]:
        def compute(group: Sequence[Seen]) -> list[Answers]:
            asked = {name: value for name, value in self.asked(group).items() if name != "token_type_ids"}
            batch = {**stacked([item.tensors for item in group]), **asked}
            told = written(_Answerer(self.model), batch, call, max_new_tokens=_LONGEST_ANSWER, model_id=self.model_id)
            return [self._answers(one) for one in told]

        return alike(items, lambda item: item.shape, compute, call)

    def _answers(self, told: Written) -> Answers:
        return [{"answer": text_of(self.tokenizer, told.tokens), "score": round(told.score, 4)}]


class _Answerer:
    """BLIP as a model that reads the question with an encoder, which it does, but does not say."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, _Encoding
        self.device, self.dtype = model.device, model.dtype
        self.generation_config = _Ending(model.config.text_config.sep_token_id)

    def generate(self, **inputs: Any) -> Any:
        return self._model.generate(**inputs)


class _Encoding:
    is_encoder_decoder = True


@dataclass(frozen=True)
class _Ending:
    eos_token_id: int
