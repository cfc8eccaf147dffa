"""`hugginggpt compare`, and routing tables that use its scores."""

import json
from pathlib import Path

import pytest
import yaml

from tests.system.conftest import ROOT, LocalStack, start_local_stack

pytestmark = pytest.mark.slow

DATA = ROOT / "tests" / "data"
TASK = "text-classification"
MOOD, TONGUE = "vaderSentiment", "py3langid"
TEXTS = {"good.txt": "I love it, it is wonderful.", "bad.txt": "A terrible, sad day.", "zug.txt": "Der Zug fährt."}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "labels.csv").write_text("file,label\ngood.txt,positive\nbad.txt,negative\n", "utf-8")
    return tmp_path


def test_compare_reports_answers_and_saves_scores(local_stack: LocalStack, texts: Path, tmp_path: Path) -> None:
    files, scores = str(texts / "*.txt"), tmp_path / "scores.yaml"
    arguments = ("compare", "text-classification", "--models", f"{MOOD},{TONGUE}", "--files", files)
    result = local_stack.run_cli(
        *arguments, "--labels", str(texts / "labels.csv"), "--save-scores", str(scores), "--json"
    )
    report = json.loads(result.out)
    assert result.status == 1, result.err  # the sentiment of German is not known
    by_file = {Path(each["file"]).name: each for each in report["files"]}
    assert list(by_file) == sorted(TEXTS)
    assert [result["answer"] for result in by_file["good.txt"]["results"]] == ["positive", "English (en)"]
    assert by_file["good.txt"]["label"] == "positive"
    assert by_file["good.txt"]["agreed"] is False
    failed, worked = by_file["zug.txt"]["results"]
    assert "English" in failed["error"]
    assert worked["answer"] == "German (de)"
    mood, tongue = report["models"]
    assert mood["score"]["files"] == 2
    assert mood["score"]["share"] == 1
    assert tongue["score"]["share"] == 0
    assert mood["answered"] == 2
    assert mood["failed"] == 1
    assert mood["median_seconds"] > 0
    (between,) = report["agreement"]
    assert between["files"] == 2
    assert between["same"] == 0
    run = local_stack.run_cli("record", worked["run_id"], "--json")
    assert json.loads(run.out)["tasks"][0]["model"]["model_id"] == TONGUE
    saved = yaml.safe_load(scores.read_text("utf-8"))
    assert saved["tasks"] == {"text-classification": {MOOD: 1.0, TONGUE: 0.0}}


def test_compare_prints_a_column_per_model(local_stack: LocalStack) -> None:
    models = "opencv/people,opencv/haar-frontalface"
    result = local_stack.run_cli("compare", "object-detection", "-m", models, "-f", str(DATA / "face.jpg"))
    assert result.status == 0, result.err
    assert all(part in result.out for part in ("opencv/people", "face.jpg", "answered", "1 of 1", "median"))


def test_compare_sets_a_further_input_for_all_models(local_stack: LocalStack) -> None:
    arguments = ("compare", "document-question-answering", "-m", "rapidocr", "-f", str(DATA / "invoice.png"), "--json")
    labels = local_stack.home / "total.csv"
    labels.write_text(f"file,label\n{DATA / 'invoice.png'},249.50\n")
    result = local_stack.run_cli(*arguments, "--labels", str(labels), "--set", "question=What is the total?")
    (answered,) = json.loads(result.out)["files"]
    assert result.status == 0, result.err
    assert answered["results"][0]["answer"]


WRONG = {
    "an unknown task": (("text-classificatio", "-m", "a,b"), "use text-classification"),
    "a task without similar name": (("nosuch", "-m", "a,b"), "see hugginggpt tasks"),
    "a model of another task": (("object-detection", "-m", "nosuch,a"), "use opencv/haar-frontalface or opencv/people"),
    "an unknown model": (("text-classification", "-m", "vaderSentimen,py3langid"), "use vaderSentiment"),
    "an unknown revision": (("text-classification", "-m", f"{MOOD}@9,{TONGUE}"), "has no revision 9"),
    "one model without labels": (("text-classification", "-m", MOOD), "or give --labels"),
    "no model": (("text-classification", "-m", ","), "hugginggpt models"),
    "a model twice": (("text-classification", "-m", f"{MOOD},{MOOD}"), "given twice"),
    "an input that is missing": (("document-question-answering", "-m", "rapidocr,rapidocr@"), "add --set question="),
    "two texts": (("question-answering", "-m", "a,b"), "set all inputs but one"),
    "an unknown parameter": (("text-classification", "-m", f"{MOOD},{TONGUE}", "--set", "topk=1"), "use top_k"),
    "a parameter without a value": (("text-classification", "-m", f"{MOOD},{TONGUE}", "--set", "top_k"), "NAME=VALUE"),
    "scores without labels": (("text-classification", "-m", "a,b", "--save-scores", "s.yaml"), "give --labels"),
    "a missing labels file": (("text-classification", "-m", "a,b", "--labels", "gone.csv"), "cannot read gone"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_invalid_compare_options_are_rejected_before_any_run(
    local_stack: LocalStack, texts: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = local_stack.run_cli("compare", *arguments, "--files", str(texts / "good.txt"))
    assert result.status == 2, result.err
    assert message in result.err, result.err


def test_routing_table_prefers_and_forbids_models(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.yaml").write_text(
        f"format: hugginggpt/scores/1\ntasks: {{text-classification: {{{TONGUE}: 1.0, {MOOD}: 0.0}}}}\n"
    )
    table = tmp_path / "routes.yaml"
    table.write_text(
        "format: hugginggpt/routes/1\nscores: scores.yaml\n"
        "tasks:\n  object-detection: {forbidden: [opencv/haar-frontalface]}\n  image-to-text: {model: rapidorc}\n"
    )
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps([{"id": 1, "task": "text-classification", "arguments": {"text": "It is so."}}]))
    with start_local_stack(tmp_path / "home", SELECTOR_ROUTES=str(table)) as local_stack:
        run = json.loads(local_stack.run_cli("ask", "--plan", str(plan), "--json").out)
        assert run["results"][0]["model"] == TONGUE
        listed = local_stack.run_cli("models")
        assert "score 1.00" in listed.out
        assert "forbidden" in listed.out
        assert "no expert offers rapidorc for image-to-text now; did you mean rapidocr?" in listed.out
        models = json.loads(local_stack.run_cli("models", "--json").out)
        assert models["selection_policy"] == "rank"
        assert [route["task"] for route in models["routes"]] == sorted(["image-to-text", TASK, "object-detection"])
        assert "routing table" in local_stack.run_cli("doctor").out
        face = [{"id": 1, "task": "object-detection", "arguments": {"image": {"input": "file1"}}}]
        plan.write_text(json.dumps([{**face[0], "pinned_model": "opencv/haar-frontalface"}]))
        result = local_stack.run_cli("ask", "--plan", str(plan), "--file", str(DATA / "face.jpg"), "--json")
        assert result.status == 1
        assert "forbidden for object-detection by the deployment's routing table" in result.out + result.err


def test_invalid_routing_table_error_names_the_line(tmp_path: Path) -> None:
    table = tmp_path / "routes.yaml"
    table.write_text("format: hugginggpt/routes/1\ntasks:\n  image-to-text: {modle: rapidocr}\n")
    message = r"routes\.yaml, line 3: tasks\.image-to-text\.modle"
    with pytest.raises(AssertionError, match=message), start_local_stack(tmp_path / "home", SELECTOR_ROUTES=str(table)):
        pass
