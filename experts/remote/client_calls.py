"""Calls of the huggingface_hub client that need more than one line."""

from typing import TYPE_CHECKING, Any

from experts.host.handler import Inputs, Parameters

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient as Client


def select(parameters: Parameters, *names: str, **renamed: str) -> dict[str, Any]:
    """Returns the parameters that are present, under the client's names (keyword: client's name, value: ours)."""
    names_by_option = dict(zip(names, names, strict=True)) | renamed
    return {theirs: parameters[ours] for theirs, ours in names_by_option.items() if ours in parameters}


async def summarize(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    lengths = select(parameters, "max_length", "min_length")
    return await client.summarization(inputs["text"], generate_parameters=lengths or None)


async def translate(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    languages = select(parameters, src_lang="source_language", tgt_lang="target_language")
    return await client.translation(inputs["text"], **languages)


async def answer_table_question(client: "Client", inputs: Inputs, _parameters: Parameters) -> Any:
    from experts.remote.tables import read_columns

    return await client.table_question_answering(read_columns(inputs["table"]), inputs["question"])


async def synthesize_speech(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = {
        name: value for name, value in select(parameters, "voice", "speed").items() if (name, value) != ("speed", 1)
    }
    return await client.text_to_speech(inputs["text"], extra_body=options or None)


async def generate_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("negative_prompt", "width", "height", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_image(inputs["text"], **select(parameters, *names))


async def edit_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("strength", "num_inference_steps", "guidance_scale", "seed")
    image = inputs["image"].content
    return await client.image_to_image(image, inputs.get("instruction"), **select(parameters, *names))


async def generate_video(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("num_frames", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_video(inputs["text"], **select(parameters, *names))


async def animate_image(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = select(parameters, "num_frames", "num_inference_steps", "seed")
    return await client.image_to_video(inputs["image"].content, prompt=inputs.get("text"), **options)


async def generate_text(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    options = select(parameters, "max_new_tokens", "temperature", "seed")
    return await client.text_generation(inputs["text"], **options)
