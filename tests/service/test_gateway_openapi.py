"""The committed OpenAPI document, and the names of its operations."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.openapi import DOCUMENT, rendered


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Method and path of each operation, and its description."""
    for path, methods in json.loads(DOCUMENT.read_text(encoding="utf-8"))["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_committed_document_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == await rendered(), "run make openapi"


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for _, operation in operations()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("operation", "operation_id", "summary"),
    [
        ("POST /v1/runs", "create_run", "Create a run"),
        ("GET /v1/files/{file_id}/content", "download_file", "Download a file"),
        ("GET /v1/pipeline-batches", "list_pipeline_batches", "List pipeline batches"),
        ("POST /v1/chat/completions", "create_chat_completion", "Create a chat completion"),
    ],
)
def test_operation_is_named_for_what_it_does(operation: str, operation_id: str, summary: str) -> None:
    described = dict(operations())[operation]
    assert described["operationId"] == operation_id
    assert described["summary"] == summary


def test_operation_ids_are_a_verb_and_a_noun() -> None:
    ids = [operation["operationId"] for _, operation in operations()]
    assert [each for each in ids if "_" not in each] == []


@pytest.mark.parametrize("path", ["/v1/artifacts/{sha256}", "/v1/files/{file_id}/content"])
def test_download_is_declared_as_bytes_first(path: str) -> None:
    content = dict(operations())[f"GET {path}"]["responses"]["200"]["content"]
    assert next(iter(content)) == "application/octet-stream"


def test_run_is_the_first_form_of_a_created_run() -> None:
    content = dict(operations())["POST /v1/runs"]["responses"]["200"]["content"]
    assert next(iter(content)) == "application/json"
