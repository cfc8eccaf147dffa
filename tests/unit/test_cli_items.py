"""Items of a batch from folders, patterns, tables and JSON lines."""

import json
import os
import re
from pathlib import Path

import pytest

from gateway.cli.batch import items
from gateway.cli.batch.output import file_name
from gateway.cli.batch.parameters import Parameters
from gateway.cli.errors import USAGE, Problem
from gateway.client import Artifact, FileId, Item, Json, Url

SIGNS = Parameters("read@2", {"image": "image"}, ["image"])
PARAMETERS = Parameters("answer@1", {"image": "image", "question": "text", "options": "json"}, ["image", "question"])
ANY = Parameters("the request")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "a.png", "sub/a.png", ".hidden.png", "out/old.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"picture")
    return tmp_path


def table(folder: Path, *lines: str, name: str = "items.csv") -> Path:
    (folder / name).write_text("\n".join(lines), "utf-8")
    return folder / name


def of_manifest(file: Path, parameters: Parameters, *settings: str) -> list[Item]:
    return list(items.of_manifest(file, parameters, items.settings(settings, parameters)))


def problem(file: Path, parameters: Parameters = PARAMETERS, *settings: str) -> str:
    with pytest.raises(Problem) as raised:
        of_manifest(file, parameters, *settings)
    assert raised.value.status == USAGE
    assert raised.value.remedy
    return raised.value.message


def test_item_names_are_one_line(folder: Path) -> None:
    (folder / "two\nlines\u202e.png").write_bytes(b"picture")
    found = items.of_files(items.files_of_patterns([str(folder / "two*")]), SIGNS, {})
    assert [item.name for item in found] == ["two lines.png"]
    (item,) = of_manifest(table(folder, "image,name", '"a.png","x\ny"'), SIGNS)
    assert item.name == "x y"


def test_folder_lists_files_without_hidden_ones_and_results(folder: Path) -> None:
    found = items.of_files(items.files_of_folder(folder, folder / "out"), SIGNS, {})
    assert found.count == 3
    assert [item.name for item in found] == ["a.png", "b.png", "sub/a.png"]
    assert [item.inputs for item in found][2] == {"image": folder / "sub/a.png"}


def test_patterns_yield_unique_files_with_distinct_names(folder: Path) -> None:
    found = items.files_of_patterns([str(folder / "sub/*.png"), str(folder / "**/a.png"), str(folder / "b.png")])
    assert [name for name, _ in items.with_names(found)] == ["sub/a.png", "a.png", "b.png"]


@pytest.mark.parametrize(
    ("pattern", "message"), [("none-*.png", "no file matches"), ("gone.png", "no file matches"), ("sub", "is a folder")]
)
def test_pattern_without_match_is_a_problem(folder: Path, pattern: str, message: str) -> None:
    with pytest.raises(Problem, match=message):
        items.files_of_patterns([str(folder / pattern)])


def test_empty_or_missing_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, message in (("empty", "has no files"), ("gone", "No such file")):
        with pytest.raises(Problem, match=message):
            items.files_of_folder(tmp_path / name, tmp_path / "out")


def test_files_of_same_name_have_distinct_output_names(folder: Path) -> None:
    found = list(items.of_files([folder / "a.png", folder / "sub/a.png"], SIGNS, {}))
    made = Artifact(sha256="0" * 64, media_type="audio/wav", name="speech.wav")
    paths = [file_name(index, item.name, "audio", made) for index, item in enumerate(found, start=1)]
    assert paths == ["files/0001-a.audio.wav", "files/0002-a.audio.wav"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "C:\\con", "a\x00b/c\n", "…" * 300, "", "."])
def test_output_file_stays_in_folder_for_any_item_name(tmp_path: Path, name: str) -> None:
    path = file_name(7, name, "../task2.audio", Artifact(sha256="0" * 64, media_type="audio/wav", name="../x.wav"))
    assert (tmp_path / path).parent == tmp_path / "files"
    assert path.startswith("files/0007-")
    assert path.endswith(".task2.audio.wav")
    (tmp_path / "files").mkdir()
    (tmp_path / path).write_bytes(b"")


def test_unreadable_file_is_still_an_item(folder: Path) -> None:
    (folder / "broken.png").symlink_to(folder / "nowhere")
    assert folder / "broken.png" in items.files_of_folder(folder, folder / "out")
    assert items.files_of_patterns([str(folder / "broken.png")]) == [folder / "broken.png"]


def test_file_name_with_invalid_utf8_is_accepted(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    odd.write_bytes(b"picture")
    assert [name for name, _ in items.with_names([odd])] == ["\N{REPLACEMENT CHARACTER}.png"]


def test_files_fill_the_only_suitable_parameter() -> None:
    assert SIGNS.for_files([]) == "image"
    assert PARAMETERS.for_files(["question"]) == "image"
    assert Parameters("two", {"image": "image", "note": "text"}, []).for_files([]) == "image"
    assert ANY.for_files([]) == "file1"
    with pytest.raises(Problem, match="two has several parameters for files: left and right"):
        Parameters("two", {"left": "image", "right": "image"}, ["left", "right"]).for_files([])
    with pytest.raises(Problem, match="--set has no value for question"):
        items.of_files([Path("a.png")], PARAMETERS, {})
    with pytest.raises(Problem, match="has no parameter for files"):
        SIGNS.for_files(["image"])


def test_settings_apply_to_all_items(folder: Path) -> None:
    given = items.settings(["question=How many = 2?", 'options={"top": 3}'], PARAMETERS)
    (item,) = items.of_files([folder / "a.png"], PARAMETERS, given)
    assert item.inputs == {"image": folder / "a.png", "question": "How many = 2?", "options": {"top": 3}}
    for wrong in ("question", "=x", "colour=red", "options={"):
        with pytest.raises(Problem):
            items.settings([wrong], PARAMETERS)


def test_table_columns_are_parameters_and_paths_are_relative_to_it(folder: Path) -> None:
    file = table(
        folder,
        "name,image,question,options",
        'first,a.png,"What, ""exactly""?","[1, 2]"',
        "",
        ",https://example.org/b.png,Why?,",
        ",file_1a2B,Who?,{}",
        ",sub/gone.png,a.png,1",
        ',a.png,Who?,"""x"""',
    )
    assert of_manifest(file, PARAMETERS) == [
        Item({"image": folder / "a.png", "question": 'What, "exactly"?', "options": [1, 2]}, "first"),
        Item({"image": Url("https://example.org/b.png"), "question": "Why?"}, "https://example.org/b.png"),
        Item({"image": FileId("file_1a2B"), "question": "Who?", "options": {}}, "file_1a2B"),
        Item({"image": folder / "sub/gone.png", "question": "a.png", "options": 1}, "sub/gone.png"),
        Item({"image": folder / "a.png", "question": "Who?", "options": Json("x")}, "a.png"),
    ]


def test_table_accepts_other_separators_and_bom(folder: Path) -> None:
    for separator, name in ((";", "items.csv"), ("\t", "items.tsv")):
        file = folder / name
        file.write_bytes("\ufeff".encode() + f"image{separator}question\r\na.png{separator}Wozu?\r\n".encode())
        assert of_manifest(file, PARAMETERS) == [Item({"image": folder / "a.png", "question": "Wozu?"}, "a.png")]


def test_json_lines_state_types_explicitly(folder: Path) -> None:
    lines = (
        {"image": "a.png", "question": "Why?", "options": "x", "name": "one"},
        {"image": {"file": "b.png"}, "question": {"text": "a.png"}, "options": {"json": None}},
        {"image": "b.png", "question": {"file": "notes.txt"}, "options": None},
    )
    file = table(folder, *(json.dumps(line) + "\n" for line in lines), name="items.jsonl")
    assert of_manifest(file, PARAMETERS) == [
        Item({"image": folder / "a.png", "question": "Why?", "options": Json("x")}, "one"),
        Item({"image": folder / "b.png", "question": "a.png", "options": None}, "b.png"),
        Item({"image": folder / "b.png", "question": folder / "notes.txt"}, "b.png"),
    ]


def test_existing_path_is_file_if_parameters_are_unknown(folder: Path) -> None:
    file = table(folder, "picture,note", "a.png,gone.png", f"b.png,{'x' * 5000}")
    assert [item.inputs for item in of_manifest(file, ANY)] == [
        {"picture": folder / "a.png", "note": "gone.png"},
        {"picture": folder / "b.png", "note": "x" * 5000},
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["image,colour", "a.png,red"], "line 2 of .* has colour, which is not a parameter of answer@1"),
        (["image,options", "a.png,1"], "has no value for question"),
        (["image,image", "a.png,b.png"], "has the column image twice"),
        (["image,", "a.png,b.png"], "has no name for column 2"),
        (["image,question", "a.png"], "line 2 of .* has 1 cells, the header 2"),
        (["image,question,options", "a.png,b,{"], "line 2 of .*: options is not JSON"),
        (["image,question,options", "a.png,b,NaN"], "line 2 of .*: options has a number that JSON cannot express"),
        (["image,question,options", f"a.png,b,{'9' * 5000}"], "line 2 of .*: options is not JSON"),
        (["image,question", 'a.png,"why'], "is not a valid table"),
        (["image,question"], "has no items"),
        ([], "is empty"),
    ],
)
def test_invalid_table_is_rejected_before_start(folder: Path, lines: list[str], message: str) -> None:
    assert re.search(message, problem(table(folder, *lines)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 of .* is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"image": "a.png", "question": "x", "image": "b.png"}', "has the key image twice"),
        ('{"image": 1, "question": "x"}', "image has 1, expected a string"),
        ('{"image": "a.png", "question": "x", "colour": 1}', "has colour"),
        ('{"image": "a.png", "question": "x", "options": [1e999]}', "options has a number that JSON cannot express"),
    ],
)
def test_invalid_json_line_is_rejected_with_line_number(folder: Path, line: str, message: str) -> None:
    good = '{"image": "a.png", "question": "x"}'
    assert re.search(message, problem(table(folder, good, line, good, name="items.jsonl")))


def test_other_file_type_is_a_problem(folder: Path) -> None:
    (folder / "latin.csv").write_bytes("image,question\na.png,Größe\n".encode("latin-1"))
    assert "not UTF-8" in problem(folder / "latin.csv")
    assert "No such file" in problem(folder / "gone.csv")
    assert "has an unknown suffix" in problem(folder / "a.png")
    assert "and --set both have a value for" in problem(
        table(folder, "image,question", "a.png,x"), PARAMETERS, "question=y"
    )


def test_a_hundred_thousand_items_are_read_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    with file.open("w", encoding="utf-8") as lines:
        lines.write("image\n")
        lines.writelines(f"{number}.png\n" for number in range(100_000))
    found = items.of_manifest(file, SIGNS, {})
    assert found.count == 100_000
    assert next(iter(found)).name == "0.png"


def test_output_file_name_fits_file_system_limits() -> None:
    face = "\N{GRINNING FACE}" * 70
    named = file_name(100_000, f"{face}.{face}", f"{face}.{face}", Artifact(sha256="a" * 64, name=f"x.{face}"))
    assert len(f"{named}.part".removeprefix("files/").encode()) <= 255
