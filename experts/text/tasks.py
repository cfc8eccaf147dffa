"""Tasks of the text expert, served by models of transformers."""

from collections.abc import Mapping

from experts.host.handler import Loader
from experts.text.classification import text_classification, zero_shot_classification
from experts.text.embeddings import feature_extraction, sentence_similarity
from experts.text.fill_mask import fill_mask
from experts.text.question_answering import question_answering
from experts.text.summarization import summarization
from experts.text.table_question_answering import table_question_answering
from experts.text.text_generation import conversational, text2text_generation, text_generation
from experts.text.token_classification import token_classification
from experts.text.translation import translation
from experts.torch_host.devices import TorchDevices

TASKS: Mapping[str, Loader] = {
    "text-classification": text_classification,
    "zero-shot-classification": zero_shot_classification,
    "token-classification": token_classification,
    "question-answering": question_answering,
    "table-question-answering": table_question_answering,
    "summarization": summarization,
    "translation": translation,
    "text2text-generation": text2text_generation,
    "text-generation": text_generation,
    "conversational": conversational,
    "fill-mask": fill_mask,
    "feature-extraction": feature_extraction,
    "sentence-similarity": sentence_similarity,
}

PRELOAD = ()
"""None: all models together take minutes to load and gigabytes of memory. Each is loaded on its first call."""

DEVICES = TorchDevices()
