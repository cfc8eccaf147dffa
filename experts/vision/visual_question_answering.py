"""Visual question answering: among known answers (ViLT), by text generation (BLIP) or by prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.host.handler import Call, Handler, Inputs, Outputs, Parameters
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.classification import DIGITS, label_names, to_probabilities, top_labels
from experts.torch_host.generated_text import GeneratedText, decode_text, generate_text
from experts.torch_host.padding import pad_rows
from experts.torch_host.token_limits import max_input_tokens
from experts.torch_host.torch_handler import copy_to_host
from experts.vision.image_batches import ImageHandler, ImageItem, run_in_groups, stack_tensors
from experts.vision.prompted import PromptedAnswerer, prompted
from experts.vision.question_limits import check_characters, check_tokens

if TYPE_CHECKING:
    import torch

_MAX_ANSWER_TOKENS = 32
_QUESTION_MODELS = ("vilt", "blip")
"""Model types that were trained for questions; others follow prompts."""

Answers = list[dict[str, Any]]


def visual_question_answering(model_id: str, device: str) -> Handler:
    """Loads ViLT or BLIP, or a model that follows prompts."""
    from transformers import AutoConfig, AutoImageProcessor, AutoModelForVisualQuestionAnswering, AutoTokenizer

    checkpoint = Checkpoint.fetch(model_id, device)
    if checkpoint.processor(AutoConfig).model_type not in _QUESTION_MODELS:
        return prompted(PromptedAnswerer, checkpoint)
    model = checkpoint.model(AutoModelForVisualQuestionAnswering)
    processor = checkpoint.processor(AutoImageProcessor)
    kind = ClassifyingAnswerer if model.config.model_type == "vilt" else GeneratingAnswerer
    return kind(checkpoint, model, processor, checkpoint.processor(AutoTokenizer))


@dataclass(frozen=True)
class QuestionItem(ImageItem):
    """Image of one call with its tokenized question."""

    question: Mapping[str, list[int]]


class QuestionAnswerer(ImageHandler):
    """Base class of both kinds of models: prepares images and questions."""

    def __init__(self, checkpoint: Checkpoint, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(checkpoint, model, processor)
        self.tokenizer, self._max_tokens = tokenizer, max_input_tokens(tokenizer, model.config)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> QuestionItem:
        question = dict(self.tokenizer(check_characters(inputs["question"], self._max_tokens, self.model_id)))
        check_tokens(len(question["input_ids"]), self._max_tokens, self.model_id)
        item = super().prepare(inputs, parameters)
        return QuestionItem(item.image, item.tensors, parameters, question)

    def question_batch(self, items: Sequence[Any]) -> "dict[str, torch.Tensor]":
        return pad_rows([item.question for item in items], self.tokenizer.pad_token_id)

    def finish(self, raw: Answers) -> Outputs:
        return {"text": raw[0]["answer"], "answers": raw}


class ClassifyingAnswerer(QuestionAnswerer):
    def forward_batch(self, items: Sequence[ImageItem]) -> "torch.Tensor":
        return copy_to_host(self.forward(items, **self.question_batch(items)).logits)

    def read_batch(self, items: Sequence[ImageItem], output: "torch.Tensor") -> list[Answers]:
        """Scores each answer independently: several may be right."""
        rows = to_probabilities(output, multi_label=True)
        labels = label_names(self.model.config)
        return [
            [
                {"answer": one["label"], "score": one["score"]}
                for one in top_labels(scores, labels, item.parameters["top_k"])
            ]
            for scores, item in zip(rows, items, strict=True)
        ]


class GeneratingAnswerer(QuestionAnswerer):
    """BLIP, whose decoder attends to the padding of questions: those of a batch have one length."""

    def run(self, items: Sequence[QuestionItem], call: Call) -> list[Answers]:
        def compute(group: Sequence[QuestionItem]) -> list[Answers]:
            questions = {name: value for name, value in self.question_batch(group).items() if name != "token_type_ids"}
            batch = {**stack_tensors([item.tensors for item in group]), **questions}
            generated = generate_text(
                _EncoderDecoder(self.model), batch, call, max_new_tokens=_MAX_ANSWER_TOKENS, model_id=self.model_id
            )
            return [self._answers(text) for text in generated]

        return run_in_groups(items, lambda item: (item.shape, len(item.question["input_ids"])), compute, call)

    def _answers(self, text: GeneratedText) -> Answers:
        return [{"answer": decode_text(self.tokenizer, text.tokens), "score": round(text.score, DIGITS)}]


class _EncoderDecoder:
    """BLIP with a configuration that states that it is an encoder-decoder model."""

    def __init__(self, model: Any) -> None:
        self._model, self.config = model, _Config
        self.device, self.dtype = model.device, model.dtype
        self.generation_config = _GenerationConfig(model.config.text_config.sep_token_id)

    def generate(self, **inputs: Any) -> Any:
        return self._model.generate(**inputs)


class _Config:
    is_encoder_decoder = True


@dataclass(frozen=True)
class _GenerationConfig:
    eos_token_id: int
