"""OCR and questions about documents, on real engines."""

import io
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from experts.host.handler import Media
from experts.host.pdf import Line
from experts.lite.document_question_answering import NO_ANSWER
from experts.lite.form_fields import answer
from experts.lite.ocr import NO_TEXT
from experts.lite.reading_order import reading_order
from services.common.errors import InvalidRequest
from tests.data.make import pdf
from tests.support.samples import Waiting, ask_lite, infer, lite, sample

pytest.importorskip("rapidocr", reason="there is no wheel of its engine for this machine")


def picture_of(*lines: str) -> Image.Image:
    image = Image.new("RGB", (900, 80 + 70 * len(lines)), "white")
    for place, line in enumerate(lines):
        ImageDraw.Draw(image).text((40, 40 + 70 * place), line, "black", ImageFont.load_default(36))
    return image


def media(image: Image.Image, kind: str = "PNG", **options: object) -> Media:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Media(
        buffer.getvalue(), "application/pdf" if kind == "PDF" else f"image/{kind.lower()}", f"x.{kind.lower()}"
    )


def read(document: Media) -> tuple[str, list[dict[str, Any]]]:
    outputs = ask_lite("image-to-text", "rapidocr", {"image": document})
    return outputs["text"], outputs["details"]["pages"]


def asked(document: Media, question: str) -> tuple[str, dict[str, Any]]:
    outputs = ask_lite("document-question-answering", "rapidocr", {"image": document, "question": question})
    return outputs["text"], outputs["details"]


def test_a_sign_is_read_line_by_line_with_boxes_and_scores() -> None:
    text, (page,) = read(sample("sign.png"))
    assert " ".join(text.split()) == "We are so happy to see you! Have a wonderful day."
    assert (page["page"], page["source"], page["width"], page["height"]) == (1, "ocr", 900, 600)
    first = page["lines"][0]
    assert first["text"] == "We are so happy"
    assert 0.9 < first["score"] <= 1
    assert list(first["box"].values()) == pytest.approx([180, 200, 720, 270], abs=40)


def test_a_picture_asked_about_again_is_not_recognised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read(sample("sign.png"))
    monkeypatch.setattr("experts.lite.ocr.run_in", None)
    assert read(sample("sign.png"))[0].startswith("We are so happy")
    with pytest.raises(TypeError):
        read(media(picture_of("something new")))


def test_a_picture_upside_down_is_read() -> None:
    text, _ = read(media(picture_of("The harbour is closed").rotate(180)))
    assert text == "The harbour is closed"


@pytest.mark.parametrize("degrees", [-4, 3])
def test_the_rows_of_a_receipt_photographed_askew_stay_together(degrees: int) -> None:
    image = Image.new("RGB", (420, 300), "white")
    font = ImageFont.load_default(24)
    for place, (thing, price) in enumerate(
        (("Milk", "2.40"), ("Bread", "3.10"), ("Coffee", "8.95"), ("TOTAL", "14.45"))
    ):
        ImageDraw.Draw(image).text((30, 40 + 48 * place), thing, "black", font)
        ImageDraw.Draw(image).text((390, 40 + 48 * place), price, "black", font, anchor="ra")
    askew = image.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    assert read(media(askew))[0].split("\n") == ["Milk\t2.40", "Bread\t3.10", "Coffee\t8.95", "TOTAL\t14.45"]


def test_a_picture_without_text_says_so() -> None:
    text, pages = read(media(Image.new("RGB", (300, 200), "#88aacc")))
    assert text == NO_TEXT
    assert pages[0]["lines"] == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("size", [(1, 1), (3, 700), (2000, 4)])
def test_pictures_of_odd_sizes_are_read_as_empty_in_good_time(size: tuple[int, int]) -> None:
    assert read(media(Image.new("RGB", size, "white")))[0] == NO_TEXT


def test_a_long_screenshot_is_read_to_its_end_each_line_once() -> None:
    image = Image.new("RGB", (500, 2000), "white")
    said = [f"Line number {number} of the chat" for number in range(25)]
    for place, line in enumerate(said):
        ImageDraw.Draw(image).text((20, 20 + 79 * place), line, "black", ImageFont.load_default(22))
    text, _ = read(media(image))
    assert text.split("\n\n") == said


def test_a_pdf_with_text_is_not_recognised_but_read() -> None:
    text, (first, second) = read(sample("letter.pdf"))
    assert text.startswith("Harbour Museum\n14 Quay Street, Bristol\n\n3 June 2024\n\nDear Ms. Clarke,\n\nThank you")
    assert (first["page"], first["source"]) == (1, "text layer")
    assert (second["page"], second["source"]) == (2, "text layer")


def test_a_scanned_pdf_is_recognised_page_by_page_and_tells_how_far_it_is() -> None:
    scan = media(
        picture_of("The first page"),
        "PDF",
        save_all=True,
        append_images=[picture_of("The second page")],
        resolution=100,
    )
    call = Waiting()
    outputs = infer(lite("image-to-text", "rapidocr"), {"image": scan}, call=call)
    assert outputs["text"] == "The first page\n\nThe second page"
    assert [page["source"] for page in outputs["details"]["pages"]] == ["ocr", "ocr"]
    assert call.heard == [0, 0.5]


def test_a_caller_who_has_gone_costs_no_more_pages() -> None:
    handler = lite("image-to-text", "rapidocr")
    assert handler.run([handler.prepare({"image": sample("letter.pdf")}, {})], Waiting(cancelled=True)) == [[]]


# ---------------------------------------------------------------- reading order


def lines(*cells: tuple[str, int, int]) -> list[Line]:
    return [Line(text, 1.0, (x, y, x + 9 * len(text), y + 20)) for text, x, y in cells]


def test_cells_of_a_row_stand_in_one_line_however_they_were_found() -> None:
    found = lines(("$5", 400, 52), ("Tax", 10, 50), ("Total", 10, 80), ("$9", 400, 78))
    assert reading_order(found) == "Tax\t$5\nTotal\t$9"


def test_a_wide_gap_begins_a_paragraph() -> None:
    assert reading_order(lines(("One", 0, 0), ("Two", 0, 26), ("Three", 0, 90))) == "One\nTwo\n\nThree"


def test_columns_of_prose_are_read_one_after_the_other() -> None:
    left = [(f"The left column, line {number}", 0, 30 * number) for number in range(5)]
    right = [(f"The right column, line {number}", 400, 30 * number) for number in range(5)]
    text = reading_order(lines(*(cell for pair in zip(left, right, strict=True) for cell in pair)))
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
        ("What is the weather like?", NO_ANSWER),
    ],
)
def test_an_invoice_answers(question: str, expected: str) -> None:
    found = answer_of_invoice(question)
    assert (found[0] if found else NO_ANSWER) == expected


def answer_of_invoice(question: str) -> tuple[str, float] | None:
    """As the handler does it, but the page is recognised only once."""
    reading = answer(question, *recognised())
    return (reading.answer, reading.score) if reading else None


def recognised() -> tuple[str, list[Line]]:
    if not _RECOGNISED:
        text, (page,) = read(sample("invoice.png"))
        found = [Line(line["text"], line["score"], tuple(line["box"].values())) for line in page["lines"]]
        _RECOGNISED.append((text, found))
    return _RECOGNISED[0]


_RECOGNISED: list[tuple[str, list[Line]]] = []


def test_an_answer_comes_with_its_score_its_page_and_the_line_it_was_read_from() -> None:
    text, details = asked(sample("invoice.png"), "What is the total on this invoice?")
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
def test_a_letter_answers_with_the_page_it_says_it_on(question: str, expected: str, page: int) -> None:
    text, details = asked(sample("letter.pdf"), question)
    assert (text, details["page"]) == (expected, page)


def test_a_document_that_does_not_say_is_not_made_to() -> None:
    text, details = asked(sample("letter.pdf"), "What is the colour of the moon?")
    assert text == NO_ANSWER
    assert (details["answer"], details["score"]) == ("", 0.0)


def test_a_value_below_its_label_is_found() -> None:
    found = answer("What is the order number?", "", lines(("Order no.", 10, 10), ("Date", 300, 10), ("A-77", 10, 40)))
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
def test_a_refusal_names_the_port(inputs: dict[str, object], port: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        infer(lite("document-question-answering", "rapidocr"), inputs)
    assert caught.value.port == port
    assert caught.value.remedy
