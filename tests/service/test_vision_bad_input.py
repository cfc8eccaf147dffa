"""Invalid images and parameters of the vision expert: errors name the port, and the next call works."""

import io
import re
from collections.abc import AsyncIterator

import pytest
from PIL import Image

from experts.host.handler import Media
from experts.vision.image_to_text import image_to_text
from services.common.errors import InvalidRequest, ServiceError
from tests.tiny import ExpertClient, TinyModels, load_models
from tests.tiny.image_files import solid_image, to_media

pytestmark = pytest.mark.slow

TASKS = sorted({task for model in load_models("vision").values() for task in model.tasks})
FIRST = {task: name for name, model in reversed(list(load_models("vision").items())) for task in model.tasks}


@pytest.fixture
async def expert(tiny_models: TinyModels) -> AsyncIterator[ExpertClient]:
    tiny_models.build("vision", "PekingU/rtdetr_r18vd_coco_o365")
    async with tiny_models.serve("vision") as expert:
        yield expert


def _image_with_large_header() -> Media:
    """Returns a file of a few bytes whose header states 20,000 x 20,000 pixels."""
    return Media(b"P4\n20000 20000\n" + bytes(64), "image/x-portable-bitmap", "huge.pbm")


async def _assert_rejected(expert: ExpertClient, image: Media | str, message: str) -> ServiceError:
    error = await expert.call_error("image-classification", {"image": image}, "tiny/vit")
    assert isinstance(error, InvalidRequest)
    assert error.port == "image"
    assert error.remedy
    assert re.search(message, str(error))
    out = await expert.call("image-classification", {"image": to_media(solid_image("blue"))}, "tiny/vit")
    assert out["text"] == "blue"
    return error


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (to_media(solid_image("red", (1, 1)), "dot.png"), "dot.png has 1 x 1 pixels"),
        (to_media(solid_image("red", (10, 2000))), "30 times as long"),
        (_image_with_large_header(), "20000 x 20000 pixels|too many pixels"),
        (Media(b"RIFF\x00\x00\x00\x00WAVE", "audio/wav", "a.wav"), "takes an image, not audio/wav"),
        (Media(b"\x89PNG\r\n\x1a\n broken", "image/png", "a.png"), "a.png"),
        ("a text", "takes an image, not text"),
    ],
)
async def test_invalid_image_is_rejected_with_its_port(expert: ExpertClient, image: Media | str, message: str) -> None:
    await _assert_rejected(expert, image, message)


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"document-question-answering"}))
async def test_image_of_one_pixel_is_rejected_by_every_task(expert: ExpertClient, task: str) -> None:
    if FIRST[task] in {"tiny/sam", "tiny/owl"}:  # share the check with the others, and take long to train
        return
    inputs: dict[str, Media | str] = {"image": to_media(solid_image("red", (1, 1)))}
    inputs |= {"question": "what is this ?"} if "question" in task else {}
    parameters = {"candidate_labels": ["red"]} if task.startswith("zero") else {}
    error = await expert.call_error(task, inputs, FIRST[task], **parameters)
    assert isinstance(error, InvalidRequest)
    assert error.port == "image"


@pytest.mark.parametrize("question", ["red " * 70, "red " * 600, "<" * 200_000], ids=["70 words", "600 words", "signs"])
@pytest.mark.parametrize(
    ("task", "model"), [("visual-question-answering", "tiny/vilt"), ("document-question-answering", "tiny/donut")]
)
async def test_question_longer_than_the_models_limit_is_rejected(
    expert: ExpertClient, task: str, model: str, question: str
) -> None:
    error = await expert.call_error(task, {"image": to_media(solid_image("red")), "question": question}, model)
    assert error.code.name == "INVALID_ARGUMENT"
    assert error.port == "question"
    assert error.reason == "TOO_LARGE"


async def test_unknown_or_out_of_range_parameter_is_rejected(expert: ExpertClient) -> None:
    image = {"image": to_media(solid_image("red"))}
    assert "no parameter colour" in str(
        await expert.call_error("image-classification", image, "tiny/vit", colour="red")
    )
    assert "top_k" in str(await expert.call_error("image-classification", image, "tiny/vit", top_k=0))
    assert "threshold" in str(await expert.call_error("object-detection", image, "tiny/yolos", threshold=2))


async def test_common_image_modes_and_formats_are_accepted(expert: ExpertClient) -> None:
    """Images with transparency, in CMYK, in 16 bits, and as a page of a PDF or TIFF."""
    sizes = (64, 64)
    for mode, kind, colour in (("RGBA", "PNG", (0, 0, 255, 255)), ("CMYK", "JPEG", (255, 255, 0, 0))):
        buffer = io.BytesIO()
        Image.new(mode, sizes, colour).save(buffer, kind)
        media = Media(buffer.getvalue(), f"image/{kind.lower()}", "a")
        assert (await expert.call("image-classification", {"image": media}, "tiny/vit"))["text"] == "blue"
    for kind, media_type in (("PDF", "application/pdf"), ("TIFF", "image/tiff")):
        buffer = io.BytesIO()
        solid_image("blue").save(buffer, kind)
        media = Media(buffer.getvalue(), media_type, "page")
        assert (await expert.call("image-classification", {"image": media}, "tiny/vit"))["text"] == "blue"
    grey = io.BytesIO()
    Image.new("I;16", sizes, 40_000).save(grey, "PNG")
    media = Media(grey.getvalue(), "image/png", "a")
    assert (await expert.call("depth-estimation", {"image": media}))["depth"].media_type == "image/png"


async def test_model_that_needs_a_question_fails_to_load_for_image_to_text(
    expert: ExpertClient, tiny_models: TinyModels
) -> None:
    folder = tiny_models.build("vision", "tiny/vilt")
    (tiny_models.folder / "tiny/not-a-captioner").symlink_to(folder)
    with pytest.raises(ServiceError, match="is of type vilt, which generates no text from images"):
        image_to_text("tiny/not-a-captioner", "cpu")
