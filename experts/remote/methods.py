"""Methods of huggingface_hub's client by task."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.endpoints import results
from experts.endpoints.media import check_audio, check_video
from experts.endpoints.prompts import read_candidate_labels
from experts.host.handler import Inputs, Outputs, Parameters
from experts.host.input_validation import parameter_port
from experts.remote import answers, client_calls, languages
from experts.remote.answers import RemoteCall
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient as Client

_FEWEST_LABELS = 2


@dataclass(frozen=True)
class Method:
    """How the client runs one task.

    Args:
        call: calls the client's method.
        write: converts its answer to outputs.
        check: raises InvalidRequest, before anything is sent, for parameters that the client would refuse.
        complete: adds optional parameters that the client requires, given the model's languages.
    """

    call: "Callable[[Client, Inputs, Parameters], Awaitable[Any]]"
    write: Callable[[RemoteCall], Outputs]
    check: Callable[[Parameters], object] = lambda _: None
    complete: Callable[[Inputs, Parameters, Collection[str]], Parameters] = lambda _inputs, parameters, _languages: (
        parameters
    )


def _several_labels(parameters: Parameters) -> None:
    if len(read_candidate_labels(parameters)) < _FEWEST_LABELS:
        raise InvalidRequest(
            "candidate_labels has only one label",
            port=parameter_port("candidate_labels"),
            remedy="give two or more labels",
        )


def _target_language(parameters: Parameters) -> None:
    if "source_language" in parameters and "target_language" not in parameters:
        raise InvalidRequest(
            "the target language is missing",
            port=parameter_port("target_language"),
            remedy="give target_language, or leave both languages to the model",
        )


METHODS: Mapping[str, Method] = {
    "text-classification": Method(
        lambda client, inputs, parameters: client.text_classification(inputs["text"], top_k=parameters["top_k"]),
        answers.convert_labels,
    ),
    "zero-shot-classification": Method(
        lambda client, inputs, parameters: client.zero_shot_classification(
            inputs["text"], read_candidate_labels(parameters), multi_label=parameters["multi_label"]
        ),
        answers.convert_labels,
        read_candidate_labels,
    ),
    "token-classification": Method(
        lambda client, inputs, _: client.token_classification(inputs["text"], aggregation_strategy="simple"),
        answers.convert_entities,
    ),
    "question-answering": Method(
        lambda client, inputs, _: client.question_answering(inputs["question"], inputs["context"]),
        answers.convert_answer,
    ),
    "table-question-answering": Method(client_calls.answer_table_question, answers.convert_table_answer),
    "summarization": Method(client_calls.summarize, answers.text_converter("summary_text")),
    "translation": Method(
        client_calls.translate,
        answers.text_converter("translation_text"),
        _target_language,
        languages.add_source_language,
    ),
    "text-generation": Method(client_calls.generate_text, answers.text_converter("generated_text")),
    "fill-mask": Method(
        lambda client, inputs, parameters: client.fill_mask(inputs["text"], top_k=parameters["top_k"]),
        answers.convert_predictions,
    ),
    "feature-extraction": Method(
        lambda client, inputs, _: client.feature_extraction(inputs["text"]), answers.convert_embedding
    ),
    "sentence-similarity": Method(
        lambda client, inputs, _: client.sentence_similarity(inputs["text"], other_sentences=list(inputs["sentences"])),
        lambda call: results.build_similarity(call.answer, call.inputs["sentences"]),
    ),
    "image-classification": Method(
        lambda client, inputs, parameters: client.image_classification(
            inputs["image"].content, top_k=parameters["top_k"]
        ),
        answers.convert_labels,
    ),
    "zero-shot-image-classification": Method(
        lambda client, inputs, parameters: client.zero_shot_image_classification(
            inputs["image"].content, read_candidate_labels(parameters)
        ),
        answers.convert_labels,
        _several_labels,
    ),
    "object-detection": Method(
        lambda client, inputs, parameters: client.object_detection(
            inputs["image"].content, threshold=parameters["threshold"]
        ),
        answers.convert_objects,
    ),
    "image-segmentation": Method(
        lambda client, inputs, parameters: client.image_segmentation(
            inputs["image"].content, threshold=parameters["threshold"]
        ),
        answers.convert_segments,
    ),
    "image-to-text": Method(
        lambda client, inputs, _: client.image_to_text(inputs["image"].content),
        answers.text_converter("generated_text"),
    ),
    "visual-question-answering": Method(
        lambda client, inputs, parameters: client.visual_question_answering(
            inputs["image"].content, inputs["question"], top_k=parameters["top_k"]
        ),
        answers.convert_visual_answers,
    ),
    "document-question-answering": Method(
        lambda client, inputs, _: client.document_question_answering(inputs["image"].content, inputs["question"]),
        answers.convert_document_answer,
    ),
    "image-to-image": Method(client_calls.edit_image, answers.convert_image),
    "automatic-speech-recognition": Method(
        lambda client, inputs, _: client.automatic_speech_recognition(inputs["audio"].content),
        answers.convert_transcript,
    ),
    "audio-classification": Method(
        lambda client, inputs, parameters: client.audio_classification(
            inputs["audio"].content, top_k=parameters["top_k"]
        ),
        answers.convert_labels,
    ),
    "text-to-speech": Method(
        client_calls.synthesize_speech, lambda call: {"audio": check_audio(call.answer, call.model_id)}
    ),
    "audio-to-audio": Method(
        lambda client, inputs, _: client.audio_to_audio(inputs["audio"].content), answers.convert_audio
    ),
    "text-to-image": Method(client_calls.generate_image, answers.convert_image),
    "text-to-video": Method(
        client_calls.generate_video, lambda call: {"video": check_video(call.answer, call.model_id)}
    ),
    "image-to-video": Method(
        client_calls.animate_image, lambda call: {"video": check_video(call.answer, call.model_id)}
    ),
}
