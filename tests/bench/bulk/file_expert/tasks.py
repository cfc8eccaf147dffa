"""Tasks of a few milliseconds, plain functions of files: two of pictures, and the text of a PDF."""

from experts.host.handler import Handler, Inputs, Media, Outputs, Parameters, single
from experts.host.media import derive_name, open_image
from tests.bench.bulk.arms.work import describe_colours, read_text, save_thumbnail


def mean_colours(model_id: str, device: str) -> Handler:
    def describe(inputs: Inputs, parameters: Parameters) -> Outputs:
        return {"text": describe_colours(open_image(inputs["image"]))}

    return single(describe)


def thumbnail(model_id: str, device: str) -> Handler:
    def shrink(inputs: Inputs, parameters: Parameters) -> Outputs:
        content = save_thumbnail(open_image(inputs["image"]))
        return {"image": Media(content, "image/jpeg", derive_name(inputs["image"], "small", "jpg"))}

    return single(shrink)


def document_text(model_id: str, device: str) -> Handler:
    def read(inputs: Inputs, parameters: Parameters) -> Outputs:
        return {"text": read_text(inputs["image"].content)}

    return single(read)


TASKS = {"mean-colours": mean_colours, "thumbnail": thumbnail, "document-text": document_text}
