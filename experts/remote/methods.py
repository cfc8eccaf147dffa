"""How huggingface_hub's client runs each task: its method, the arguments, and the conversion of its answer."""

import csv
import io
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.endpoints import results
from experts.endpoints.media import check_audio, check_video
from experts.host.handler import Inputs, Media, Outputs, Parameters
from experts.host.input_validation import parameter_port, read_candidate_labels
from experts.remote import answers, languages
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
        convert: converts its answer to outputs.
        check: raises InvalidRequest, before anything is sent, for parameters that the client would refuse.
        complete: adds optional parameters that the client requires, given the model's languages.
    """

    call: "Callable[[Client, Inputs, Parameters], Awaitable[Any]]"
    convert: Callable[[RemoteCall], Outputs]
    check: Callable[[Parameters], object] = lambda _: None
    complete: Callable[[Inputs, Parameters, Collection[str]], Parameters] = lambda _inputs, parameters, _languages: (
        parameters
    )


def _check_several_labels(parameters: Parameters) -> None:
    if len(read_candidate_labels(parameters)) < _FEWEST_LABELS:
        raise InvalidRequest(
            "candidate_labels has only one label",
            port=parameter_port("candidate_labels"),
            remedy="give two or more labels",
        )


def _check_target_language(parameters: Parameters) -> None:
    if "source_language" in parameters and "target_language" not in parameters:
        raise InvalidRequest(
            "the target language is missing",
            port=parameter_port("target_language"),
            remedy="give target_language, or leave both languages to the model",
        )


# ---------------------------------------------------------------- calls of more than one line


def _select(parameters: Parameters, *names: str, **renamed: str) -> dict[str, Any]:
    """Returns the parameters that are present, under the client's names (keyword: client's name, value: ours)."""
    names_by_option = dict(zip(names, names, strict=True)) | renamed
    return {theirs: parameters[ours] for theirs, ours in names_by_option.items() if ours in parameters}


async def _summarize(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    lengths = _select(parameters, "max_length", "min_length")
    return await client.summarization(inputs["text"], generate_parameters=lengths or None)


async def _translate(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = _select(parameters, src_lang="source_language", tgt_lang="target_language")
    return await client.translation(inputs["text"], **options)


async def _answer_table_question(client: "Client", inputs: Inputs, _parameters: Parameters) -> Any:
    return await client.table_question_answering(_read_columns(inputs["table"]), inputs["question"])


async def _synthesize_speech(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = {
        name: value for name, value in _select(parameters, "voice", "speed").items() if (name, value) != ("speed", 1)
    }
    return await client.text_to_speech(inputs["text"], extra_body=options or None)


async def _generate_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("negative_prompt", "width", "height", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_image(inputs["text"], **_select(parameters, *names))


async def _edit_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("strength", "num_inference_steps", "guidance_scale", "seed")
    image = inputs["image"].content
    return await client.image_to_image(image, inputs.get("instruction"), **_select(parameters, *names))


async def _generate_video(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("num_frames", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_video(inputs["text"], **_select(parameters, *names))


async def _animate_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = _select(parameters, "num_frames", "num_inference_steps", "seed")
    return await client.image_to_video(inputs["image"].content, prompt=inputs.get("text"), **options)


async def _generate_text(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = _select(parameters, "max_new_tokens", "temperature", "seed")
    return await client.text_generation(inputs["text"], **options)


def _read_columns(media: Media) -> dict[str, list[str]]:
    """Returns the cells by column, from CSV or a JSON list of records.

    Raises:
        InvalidRequest: it is neither, or has no rows.
    """
    try:
        text = media.content.decode("utf-8-sig")
        rows = json.loads(text) if media.media_type == "application/json" else list(csv.DictReader(io.StringIO(text)))
        return _group_by_column(rows)
    except (ValueError, TypeError, AttributeError, LookupError, csv.Error) as error:
        raise InvalidRequest(
            f"cannot read {media.name}: it is not a table",
            port="table",
            remedy="send CSV with a header and rows, in UTF-8, or a JSON list of records",
        ) from error


def _group_by_column(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    names = [str(name) for name in rows[0]]
    return {name: ["" if row.get(name) is None else str(row[name]) for row in rows] for name in names}


# ---------------------------------------------------------------- table

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
    "table-question-answering": Method(_answer_table_question, answers.convert_table_answer),
    "summarization": Method(_summarize, answers.text_converter("summary_text")),
    "translation": Method(
        _translate,
        answers.text_converter("translation_text"),
        _check_target_language,
        languages.add_source_language,
    ),
    "text-generation": Method(_generate_text, answers.text_converter("generated_text")),
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
        _check_several_labels,
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
    "image-to-image": Method(_edit_image, answers.convert_image),
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
    "text-to-speech": Method(_synthesize_speech, lambda call: {"audio": check_audio(call.answer, call.model_id)}),
    "audio-to-audio": Method(
        lambda client, inputs, _: client.audio_to_audio(inputs["audio"].content), answers.convert_audio
    ),
    "text-to-image": Method(_generate_image, answers.convert_image),
    "text-to-video": Method(_generate_video, lambda call: {"video": check_video(call.answer, call.model_id)}),
    "image-to-video": Method(_animate_image, lambda call: {"video": check_video(call.answer, call.model_id)}),
}
