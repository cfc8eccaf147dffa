"""HTTP calls for pipelines and batches, shared by both clients."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from gateway.client.calls import STREAM, Call
from gateway.client.models import Page, Port, Run
from gateway.client.pipelines.items import JsonLinesBody
from gateway.client.pipelines.models import Batch, BatchItem, BatchSummary, Pipeline
from gateway.client.pipelines.options import Plan, run_id

MAX_PAGE = 1_000
"""Page size of items; pages of large items are shorter."""


def _pipeline(reply: httpx.Response) -> Pipeline:
    return Pipeline.model_validate(reply.json())


def _pipelines(reply: httpx.Response) -> Page[Pipeline]:
    content = reply.json()
    return Page([Pipeline.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))


def _batch(reply: httpx.Response) -> Batch:
    return Batch.model_validate(reply.json())


def _nothing(_: httpx.Response) -> None:
    return None


def _pipeline_path(name: str, *more: str) -> str:
    return "/".join(("/v1/pipelines", quote(name, safe=""), *more))


def _path(batch_id: str, *more: str) -> str:
    return "/".join(("/v1/batches", quote(batch_id, safe=""), *more))


def save_pipeline(name: str, source: Plan | str, options: Mapping[str, Any], inputs: Sequence[Port]) -> Call[Pipeline]:
    """Saves a plan, or the plan of a run."""
    origin = {"run_id": run_id(source)} if isinstance(source, Run | str) else {"plan": list(source)}
    described = [port.model_dump(exclude_unset=True) for port in inputs]
    body = {**origin, **{key: value for key, value in options.items() if value}, "inputs": described}
    return Call("PUT", _pipeline_path(name), _pipeline, body=body)


def pipelines(page_size: int, page_token: str) -> Call[Page[Pipeline]]:
    return Call("GET", "/v1/pipelines", _pipelines, {"page_size": page_size, "page_token": page_token})


def versions(name: str, page_size: int, page_token: str) -> Call[Page[Pipeline]]:
    return Call("GET", _pipeline_path(name, "versions"), _pipelines, {"page_size": page_size, "page_token": page_token})


def pipeline(name: str, version: int) -> Call[Pipeline]:
    return Call("GET", _pipeline_path(name), _pipeline, {"version": version})


def delete_pipeline(name: str, version: int) -> Call[None]:
    return Call("DELETE", _pipeline_path(name), _nothing, {"version": version}, repeatable=False)


def start_batch(body: JsonLinesBody, key: str) -> Call[Batch]:
    """Starts a batch; requests with the same key start only one."""
    return Call("POST", "/v1/batches", _batch, headers={"Idempotency-Key": key or uuid4().hex}, form=body)


def batch(batch_id: str) -> Call[Batch]:
    return Call("GET", _path(batch_id), _batch)


def batches(states: Sequence[str], page_size: int, page_token: str) -> Call[Page[Batch]]:
    def read(reply: httpx.Response) -> Page[Batch]:
        content = reply.json()
        return Page([Batch.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))

    params = {"state": list(states) or None, "page_size": page_size, "page_token": page_token}
    return Call("GET", "/v1/batches", read, params)


def items(batch_id: str, after: int, states: Sequence[str], page_token: str) -> Call[Page[BatchItem]]:
    """A page of the items after an index."""

    def read(reply: httpx.Response) -> Page[BatchItem]:
        content = reply.json()
        return Page([BatchItem.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))

    return Call(
        "GET",
        _path(batch_id, "items"),
        read,
        {"after": after, "state": list(states) or None, "page_size": MAX_PAGE, "page_token": page_token},
    )


def results(batch_id: str, states: Sequence[str]) -> Call[None]:
    """Streams the results as JSON lines."""
    params = {"state": list(states) or None}
    return Call("GET", _path(batch_id, "results"), _nothing, params, {"Accept": "application/x-ndjson"})


def batch_events(batch_id: str) -> Call[None]:
    return Call("GET", _path(batch_id, "events"), _nothing, headers={"Accept": STREAM})


def batch_summary(batch_id: str) -> Call[BatchSummary]:
    return Call("GET", _path(batch_id, "summary"), lambda reply: BatchSummary.model_validate(reply.json()))


def cancel_batch(batch_id: str) -> Call[None]:
    return Call("POST", _path(batch_id, "cancel"), _nothing)


def resume_batch(batch_id: str, *, failed_only: bool) -> Call[Batch]:
    return Call("POST", _path(batch_id, "resume"), _batch, body={"failed_only": failed_only}, repeatable=False)


def delete_batch(batch_id: str) -> Call[None]:
    return Call("DELETE", _path(batch_id), _nothing, repeatable=False)
