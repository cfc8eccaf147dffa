"""What the client is called with, for those tasks where that takes more than a line."""

from typing import TYPE_CHECKING, Any

from experts.host.handler import Inputs, Parameters

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient as Client


def given(parameters: Parameters, *names: str, **renamed: str) -> dict[str, Any]:
    """Those that were given; of renamed ones the client's name comes first, then ours."""
    wanted = dict(zip(names, names, strict=True)) | renamed
    return {theirs: parameters[ours] for theirs, ours in wanted.items() if ours in parameters}


async def summarise(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    lengths = given(parameters, "max_length", "min_length")
    return await client.summarization(inputs["text"], generate_parameters=lengths or None)


async def translate(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    languages = given(parameters, src_lang="source_language", tgt_lang="target_language")
    return await client.translation(inputs["text"], **languages)


async def ask_table(client: "Client", inputs: Inputs, _parameters: Parameters) -> Any:
    from experts.remote.tables import columns

    return await client.table_question_answering(columns(inputs["table"]), inputs["question"])


async def speak(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    wishes = {
        name: value for name, value in given(parameters, "voice", "speed").items() if (name, value) != ("speed", 1)
    }
    return await client.text_to_speech(inputs["text"], extra_body=wishes or None)


async def paint(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("negative_prompt", "width", "height", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_image(inputs["text"], **given(parameters, *names))


async def repaint(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("strength", "num_inference_steps", "guidance_scale", "seed")
    image = inputs["image"].content
    return await client.image_to_image(image, inputs.get("instruction"), **given(parameters, *names))


async def film(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    names = ("num_frames", "num_inference_steps", "guidance_scale", "seed")
    return await client.text_to_video(inputs["text"], **given(parameters, *names))


async def animate(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    wishes = given(parameters, "num_frames", "num_inference_steps", "seed")
    return await client.image_to_video(inputs["image"].content, prompt=inputs.get("text"), **wishes)


async def write_on(client: "Client", inputs: Inputs, parameters: Parameters) -> Any:
    wishes = given(parameters, "max_new_tokens", "temperature", "seed")
    return await client.text_generation(inputs["text"], **wishes)
