"""OCR, reading order and document question answering of the lite expert, on the real engines."""

import io
from functools import cache
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from experts.host.handler import Media
from experts.host.media import Line
from experts.lite.form_fields import find_field_answer
from experts.lite.question_types import Question
from experts.lite.reading_order import join_in_reading_order
from services.common.errors import InvalidRequest
from tests.data.make import pdf
from tests.support.samples import RecordingCall, infer, load_lite_model, run_lite_task, sample

pytest.importorskip("rapidocr", reason="rapidocr is not installed: its engine has no wheel for this platform")


def draw_lines(*lines: str) -> Image.Image:
    image = Image.new("RGB", (900, 80 + 70 * len(lines)), "white")
    for row, line in enumerate(lines):
        ImageDraw.Draw(image).text((40, 40 + 70 * row), line, "black", ImageFont.load_default(36))
    return image


def to_media(image: Image.Image, kind: str = "PNG", **options: object) -> Media:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Media(
        buffer.getvalue(), "application/pdf" if kind == "PDF" else f"image/{kind.lower()}", f"x.{kind.lower()}"
    )


def read(document: Media) -> tuple[str, list[dict[str, Any]]]:
    outputs = run_lite_task("image-to-text", "rapidocr", {"image": document})
    return outputs["text"], outputs["details"]["pages"]


def ask_document(document: Media, question: str) -> tuple[str, dict[str, Any]]:
    outputs = run_lite_task("document-question-answering", "rapidocr", {"image": document, "question": question})
    return outputs["text"], outputs["details"]


def test_sign_is_read_with_boxes_and_scores() -> None:
    text, (page,) = read(sample("sign.png"))
    assert " ".join(text.split()) == "We are so happy to see you! Have a wonderful day."
    assert page["page"] == 1
    assert page["source"] == "ocr"
    assert page["width"] == 900
    assert page["height"] == 600
    first = page["lines"][0]
    assert first["text"] == "We are so happy"
    assert 0.9 < first["score"] <= 1
    assert list(first["box"].values()) == pytest.approx([180, 200, 720, 270], abs=40)


def test_repeated_picture_is_served_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    read(sample("sign.png"))
    monkeypatch.setattr("experts.lite.ocr.run_in_pool", None)
    assert read(sample("sign.png"))[0].startswith("We are so happy")
    with pytest.raises(TypeError):
        read(to_media(draw_lines("something new")))


def test_upside_down_picture_is_read() -> None:
    text, _ = read(to_media(draw_lines("The harbour is closed").rotate(180)))
    assert text == "The harbour is closed"


@pytest.mark.parametrize("degrees", [-4, 3])
def test_rows_of_a_skewed_receipt_stay_together(degrees: int) -> None:
    image = Image.new("RGB", (420, 300), "white")
    font = ImageFont.load_default(24)
    for row, (thing, price) in enumerate((("Milk", "2.40"), ("Bread", "3.10"), ("Coffee", "8.95"), ("TOTAL", "14.45"))):
        ImageDraw.Draw(image).text((30, 40 + 48 * row), thing, "black", font)
        ImageDraw.Draw(image).text((390, 40 + 48 * row), price, "black", font, anchor="ra")
    skewed = image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert read(to_media(skewed))[0].split("\n") == ["Milk\t2.40", "Bread\t3.10", "Coffee\t8.95", "TOTAL\t14.45"]


def test_picture_without_text_returns_empty_text() -> None:
    text, pages = read(to_media(Image.new("RGB", (300, 200), "#88aacc")))
    assert text == ""
    assert pages[0]["lines"] == []


@pytest.mark.timeout(60)  # the widest takes 17 s of processor time on one core
@pytest.mark.parametrize("size", [(1, 1), (3, 700), (2000, 4)])
def test_tiny_and_narrow_pictures_are_read_as_empty_in_time(size: tuple[int, int]) -> None:
    assert read(to_media(Image.new("RGB", size, "white")))[0] == ""


def test_each_line_of_a_long_screenshot_is_read_once() -> None:
    image = Image.new("RGB", (500, 2000), "white")
    expected = [f"Line number {number} of the chat" for number in range(25)]
    for row, line in enumerate(expected):
        ImageDraw.Draw(image).text((20, 20 + 79 * row), line, "black", ImageFont.load_default(22))
    text, _ = read(to_media(image))
    assert text.split("\n\n") == expected


def test_text_layer_of_a_pdf_is_used_without_ocr() -> None:
    text, (first, second) = read(sample("letter.pdf"))
    assert text.startswith("Harbour Museum\n14 Quay Street, Bristol\n\n3 June 2024\n\nDear Ms. Clarke,\n\nThank you")
    assert first["page"] == 1
    assert first["source"] == "text layer"
    assert second["page"] == 2
    assert second["source"] == "text layer"


def test_scanned_pdf_is_recognized_by_page_with_progress() -> None:
    scan = to_media(
        draw_lines("The first page"),
        "PDF",
        save_all=True,
        append_images=[draw_lines("The second page")],
        resolution=100,
    )
    call = RecordingCall()
    outputs = infer(load_lite_model("image-to-text", "rapidocr"), {"image": scan}, call=call)
    assert outputs["text"] == "The first page\n\nThe second page"
    assert [page["source"] for page in outputs["details"]["pages"]] == ["ocr", "ocr"]
    assert call.fractions == [0, 0.5]


def test_cancelled_call_reads_no_more_pages() -> None:
    handler = load_lite_model("image-to-text", "rapidocr")
    assert handler.run([handler.prepare({"image": sample("letter.pdf")}, {})], RecordingCall(cancelled=True)) == [[]]


# ---------------------------------------------------------------- reading order


def make_lines(*cells: tuple[str, int, int]) -> list[Line]:
    return [Line(text, 1.0, (x, y, x + 9 * len(text), y + 20)) for text, x, y in cells]


def test_cells_of_a_row_are_joined_in_one_line() -> None:
    found = make_lines(("$5", 400, 52), ("Tax", 10, 50), ("Total", 10, 80), ("$9", 400, 78))
    assert join_in_reading_order(found) == "Tax\t$5\nTotal\t$9"


def test_wide_gap_starts_a_paragraph() -> None:
    assert join_in_reading_order(make_lines(("One", 0, 0), ("Two", 0, 26), ("Three", 0, 90))) == "One\nTwo\n\nThree"


def test_columns_of_prose_are_read_in_sequence() -> None:
    left = [(f"The left column, line {number}", 0, 30 * number) for number in range(5)]
    right = [(f"The right column, line {number}", 400, 30 * number) for number in range(5)]
    text = join_in_reading_order(make_lines(*(cell for pair in zip(left, right, strict=True) for cell in pair)))
    assert text.index("left column, line 4") < text.index("right column, line 0")


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the total on this invoice?", "$691.74"),
        ("How much do I have to pay?", "$691.74"),
        ("What is the subtotal?", "$640.50"),
        ("How much is the tax?", "$51.24"),
        ("What is the invoice number?", "INV-2024-0117"),
        ("What is the date of the invoice?", "12 March 2024"),
        ("What is the due date in this document?", "11 April 2024"),
        ("When is the payment due?", "11 April 2024"),
        ("Who is the invoice billed to?", "Jane Porter"),
        ("Who is the sender?", "Oak & Elm Furniture Ltd."),
        ("How much is the delivery?", "35.00"),
        ("What is the phone number?", "+44 113 496 0000"),
        ("What is the weather like?", None),
    ],
)
def test_question_about_an_invoice_is_answered(question: str, expected: str | None) -> None:
    found = find_field_answer(Question.parse(question), *read_invoice())
    assert (found.answer if found else None) == expected


@cache
def read_invoice() -> tuple[str, list[Line]]:
    """Recognizes the invoice once for all questions."""
    text, (page,) = read(sample("invoice.png"))
    return text, [Line(line["text"], line["score"], tuple(line["box"].values())) for line in page["lines"]]


def test_answer_has_score_page_and_line() -> None:
    text, details = ask_document(sample("invoice.png"), "What is the total on this invoice?")
    assert text == details["answer"] == "$691.74"
    assert 0.8 < details["score"] <= 1
    assert details["page"] == 1
    line = details["line"]
    assert line["text"] == "$691.74"
    assert line["box"]["ymin"] > 800


@pytest.mark.parametrize(
    ("question", "expected", "page"),
    [
        ("When does the exhibition open?", "15 July", 1),
        ("What is the date of this letter?", "3 June 2024", 1),
        ("Who is the curator?", "Helen Marsh", 1),
        ("Who will collect the models?", "Tom Reed", 2),
        ("How much does the insurance cover?", "$25,000", 2),
        ("What is the email address?", "office@harbourmuseum.example", 2),
        ("Who signed the letter?", "Peter Lowell", 2),
    ],
)
def test_question_about_a_letter_is_answered_with_the_page(question: str, expected: str, page: int) -> None:
    text, details = ask_document(sample("letter.pdf"), question)
    assert text == expected
    assert details["page"] == page


def test_unanswerable_document_question_has_no_answer() -> None:
    text, details = ask_document(sample("letter.pdf"), "What is the colour of the moon?")
    assert text == "I found no answer to “What is the colour of the moon?” in letter.pdf."
    assert details["answer"] == ""
    assert details["score"] == 0.0


def test_value_below_its_label_is_found() -> None:
    found = find_field_answer(
        Question.parse("What is the order number?"),
        "",
        make_lines(("Order no.", 10, 10), ("Date", 300, 10), ("A-77", 10, 40)),
    )
    assert found
    assert found.answer == "A-77"


@pytest.mark.parametrize(
    ("inputs", "port"),
    [
        ({"image": Media(b"no picture", "image/png", "x.png"), "question": "What is the total?"}, "image"),
        ({"image": Media(pdf([]), "application/pdf", "x.pdf"), "question": "What is the total?"}, "image"),
        ({"image": sample("invoice.png"), "question": "  "}, "question"),
    ],
)
def test_invalid_input_error_names_the_port(inputs: dict[str, object], port: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        infer(load_lite_model("document-question-answering", "rapidocr"), inputs)
    assert caught.value.port == port
    assert caught.value.remedy
