"""HTTP calls of the gateway's API, shared by both clients: request, and parsing of the reply."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx

from gateway.client.attachments import Attachment, Url
from gateway.client.connection import GREETING_SECONDS
from gateway.client.downloads import name_from_disposition
from gateway.client.errors import NoGateway, Refused, refusal, unreachable
from gateway.client.models import (
    Artifact,
    Batch,
    BatchItem,
    BatchSummary,
    Conversation,
    Model,
    Page,
    Pipeline,
    Port,
    Run,
    StoredFile,
    TaskKind,
)
from gateway.client.options import Plan, run_id
from gateway.client.request_body import Body, Form, OnSent

T = TypeVar("T")

SERVICE = "hugginggpt"
"""Service name in the gateway's health response."""

STREAM = "text/event-stream"

UPLOAD_RETENTION_SECONDS = 3600
"""Retention of a file uploaded for one request that no run refers to; the gateway's minimum."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and the parser of its reply."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON body."""
    form: Body | None = None
    """Any other body."""
    repeatable: bool = True
    """Whether the call is idempotent."""

    def request(self, http: "httpx.Client | httpx.AsyncClient") -> httpx.Request:
        values = {key: value for key, value in self.params.items() if value not in ("", 0, None)}
        params = values or None  # empty params would remove the query of the path
        if self.form:
            headers = {**self.headers, **self.form.headers}
            content = aiter(self.form) if isinstance(http, httpx.AsyncClient) else iter(self.form)
            return http.build_request(self.method, self.path, params=params, headers=headers, content=content)
        return http.build_request(self.method, self.path, params=params, headers=dict(self.headers), json=self.body)

    def answer(self, reply: httpx.Response) -> T:
        """Parses the reply.

        Raises:
            Refused: the gateway returned an error.
            NoGateway: the reply is not from a gateway.
        """
        if not reply.is_success:
            raise refusal(reply)
        try:
            return self.read(reply)
        except (ValueError, LookupError, TypeError) as error:
            raise not_a_gateway(str(reply.request.url)) from error


def not_a_gateway(url: str) -> NoGateway:
    return NoGateway(
        f"the server at {url} is not a HuggingGPT gateway", code="NO_GATEWAY", remedy="check the gateway's URL (--url)"
    )


def check_greeting(url: str, reply: httpx.Response | None, error: httpx.TransportError | None) -> None:
    """Checks the reply to a health request.

    Raises:
        Unreachable: nothing listens at the address.
        NoGateway: the server is not a gateway.
    """
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        raise unreachable(url, error)
    try:
        is_gateway = reply is not None and reply.json().get("service") == SERVICE
    except (ValueError, AttributeError):
        is_gateway = False
    if not is_gateway:
        raise not_a_gateway(url) from error


GREETING: Mapping[str, Any] = {"url": "/healthz", "timeout": GREETING_SECONDS}


def _nothing(_: httpx.Response) -> None:
    return None


def _json(reply: httpx.Response) -> Any:
    return reply.json()


def _run(reply: httpx.Response) -> Run:
    return Run.model_validate(reply.json())


def _file(reply: httpx.Response) -> StoredFile:
    return StoredFile.model_validate(reply.json())


def _run_path(run_id: str, *more: str) -> str:
    return "/".join(("/v1/runs", quote(run_id, safe=""), *more))


def fetch(path: str) -> Call[Any]:
    return Call("GET", path, _json)


def start(
    spec: Mapping[str, Any],
    files: Sequence[Attachment],
    key: str,
    on_sent: OnSent | None,
    *,
    streaming: bool,
) -> Call[Run]:
    """Starts a run; requests with the same key start only one."""
    headers = {"Idempotency-Key": key or uuid4().hex, **({"Accept": STREAM} if streaming else {})}
    if files:
        return Call("POST", "/v1/runs", _run, headers=headers, form=Form({"spec": json.dumps(spec)}, files, on_sent))
    return Call("POST", "/v1/runs", _run, headers=headers, body=spec)


def events(run_id: str, after: int) -> Call[None]:
    headers = {"Accept": STREAM, **({"Last-Event-ID": str(after)} if after else {})}
    return Call("GET", _run_path(run_id, "events"), _nothing, headers=headers)


def run(run_id: str) -> Call[Run]:
    return Call("GET", _run_path(run_id), _run)


def runs(states: Sequence[str], conversation_id: str, page_size: int, page_token: str) -> Call[Page[Run]]:
    def read(reply: httpx.Response) -> Page[Run]:
        content = reply.json()
        return Page([Run.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))

    params = {"state": list(states) or None, "conversation_id": conversation_id}
    return Call("GET", "/v1/runs", read, {**params, "page_size": page_size, "page_token": page_token})


def cancel(run_id: str) -> Call[None]:
    return Call("POST", _run_path(run_id, "cancel"), _nothing)


def approve(run_id: str, plan: Run | Sequence[Mapping[str, Any]] | None) -> Call[None]:
    tasks = plan.plan if isinstance(plan, Run) else plan
    body = {} if tasks is None else {"plan": list(tasks)}
    return Call("POST", _run_path(run_id, "approve"), _nothing, body=body, repeatable=False)


def verify(run_id: str) -> Call[Any]:
    return Call("POST", f"{_run_path(run_id)}/verify", _json, repeatable=False)


def delete(run_id: str) -> Call[None]:
    return Call("DELETE", _run_path(run_id), _nothing, repeatable=False)


def upload(file: Attachment, purpose: str, expires_after: int | None, on_sent: OnSent | None) -> Call[StoredFile]:
    fields = {"purpose": purpose}
    if expires_after is not None:
        fields |= {"expires_after[anchor]": "created_at", "expires_after[seconds]": str(expires_after)}
    return Call("POST", "/v1/files", _file, form=Form(fields, [file], on_sent), repeatable=False)


def upload_many(files: Sequence[Attachment], on_sent: OnSent | None) -> Call[list[Artifact | Refused]]:
    """Uploads files in one request; each becomes an artifact or, alone, an error."""

    def read(reply: httpx.Response) -> list[Artifact | Refused]:
        return [
            refusal(reply, each["error"]) if "error" in each else Artifact.model_validate(each["artifact"])
            for each in reply.json()["data"]
        ]

    return Call("POST", "/v1/artifacts", read, form=Form({}, files, on_sent))


def file(file_id: str) -> Call[StoredFile]:
    return Call("GET", f"/v1/files/{quote(file_id, safe='')}", _file)


def files(after: str, limit: int) -> Call[Page[StoredFile]]:
    def read(reply: httpx.Response) -> Page[StoredFile]:
        content = reply.json()
        more = content["last_id"] if content["has_more"] else ""
        return Page([StoredFile.model_validate(each) for each in content["data"]], more)

    return Call("GET", "/v1/files", read, {"after": after, "limit": limit})


def delete_file(file_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/files/{quote(file_id, safe='')}", _nothing, repeatable=False)


def artifact(sha256: str) -> Call[Artifact]:
    """Metadata of an artifact."""

    def read(reply: httpx.Response) -> Artifact:
        content_type, disposition = reply.headers.get("content-type", ""), reply.headers.get("content-disposition", "")
        size = int(reply.headers.get("content-length", 0))
        return Artifact(
            sha256=sha256,
            media_type=content_type.partition(";")[0],
            size_bytes=size,
            name=name_from_disposition(disposition),
        )

    return Call("HEAD", f"/v1/artifacts/{quote(sha256, safe='')}", read)


def content(sha256: str, headers: Mapping[str, str]) -> Call[None]:
    """Streams the bytes of an artifact."""
    uncompressed = {**headers, "Accept-Encoding": "identity"}
    return Call("GET", f"/v1/artifacts/{quote(sha256, safe='')}", _nothing, headers=uncompressed)


def conversations(page_size: int, page_token: str) -> Call[Page[Conversation]]:
    def read(reply: httpx.Response) -> Page[Conversation]:
        content = reply.json()
        items = [Conversation.model_validate(each) for each in content["data"]]
        return Page(items, content.get("next_page_token", ""))

    return Call("GET", "/v1/conversations", read, {"page_size": page_size, "page_token": page_token})


def conversation(conversation_id: str) -> Call[Conversation]:
    path = f"/v1/conversations/{quote(conversation_id, safe='')}"
    return Call("GET", path, lambda reply: Conversation.model_validate(reply.json()))


def delete_conversation(conversation_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/conversations/{quote(conversation_id, safe='')}", _nothing, repeatable=False)


def tasks() -> Call[list[TaskKind]]:
    return Call("GET", "/v1/tasks", lambda reply: [TaskKind.model_validate(each) for each in reply.json()["data"]])


def models(task: str) -> Call[list[Model]]:
    def read(reply: httpx.Response) -> list[Model]:
        return [Model.model_validate(each) for each in reply.json()["models"]]

    return Call("GET", "/v1/models", read, {"task": task})


def forget(expert: str) -> Call[None]:
    return Call("DELETE", f"/v1/experts/{quote(expert, safe='')}", _nothing, repeatable=False)


RemoteFile = Url | Artifact
"""A file that the gateway has, or can download."""


def artifacts(source: Run | StoredFile | Artifact) -> list[Artifact]:
    """The artifacts of a run, stored file or artifact."""
    match source:
        case Run():
            return source.artifacts
        case StoredFile():
            return [source.artifact]
    return [source]


def as_input(part: RemoteFile) -> dict[str, Any]:
    """Renders a file as an input of a run spec."""
    if isinstance(part, Url):
        return {"url": part.url}
    return {"artifact": part.model_dump(include={"sha256", "name"})}


MAX_PAGE = 1_000
"""Page size of items; pages of large items are shorter."""


def _pipeline(reply: httpx.Response) -> Pipeline:
    return Pipeline.model_validate(reply.json())


def _pipelines(reply: httpx.Response) -> Page[Pipeline]:
    content = reply.json()
    return Page([Pipeline.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))


def _batch(reply: httpx.Response) -> Batch:
    return Batch.model_validate(reply.json())


def _pipeline_path(name: str, *more: str) -> str:
    return "/".join(("/v1/pipelines", quote(name, safe=""), *more))


def _batch_path(batch_id: str, *more: str) -> str:
    return "/".join(("/v1/pipeline-batches", quote(batch_id, safe=""), *more))


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


def start_batch(body: Body, key: str) -> Call[Batch]:
    """Starts a batch; requests with the same key start only one."""
    return Call("POST", "/v1/pipeline-batches", _batch, headers={"Idempotency-Key": key or uuid4().hex}, form=body)


def batch(batch_id: str) -> Call[Batch]:
    return Call("GET", _batch_path(batch_id), _batch)


def batches(states: Sequence[str], page_size: int, page_token: str) -> Call[Page[Batch]]:
    def read(reply: httpx.Response) -> Page[Batch]:
        content = reply.json()
        return Page([Batch.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))

    params = {"state": list(states) or None, "page_size": page_size, "page_token": page_token}
    return Call("GET", "/v1/pipeline-batches", read, params)


def items(batch_id: str, after: int, states: Sequence[str], page_token: str) -> Call[Page[BatchItem]]:
    """A page of the items after an index."""

    def read(reply: httpx.Response) -> Page[BatchItem]:
        content = reply.json()
        return Page([BatchItem.model_validate(each) for each in content["data"]], content.get("next_page_token", ""))

    return Call(
        "GET",
        _batch_path(batch_id, "items"),
        read,
        {"after": after, "state": list(states) or None, "page_size": MAX_PAGE, "page_token": page_token},
    )


def results(batch_id: str, states: Sequence[str]) -> Call[None]:
    """Streams the results as JSON lines."""
    params = {"state": list(states) or None}
    return Call("GET", _batch_path(batch_id, "results"), _nothing, params, {"Accept": "application/x-ndjson"})


def batch_events(batch_id: str) -> Call[None]:
    return Call("GET", _batch_path(batch_id, "events"), _nothing, headers={"Accept": STREAM})


def batch_summary(batch_id: str) -> Call[BatchSummary]:
    return Call("GET", _batch_path(batch_id, "summary"), lambda reply: BatchSummary.model_validate(reply.json()))


def cancel_batch(batch_id: str) -> Call[None]:
    return Call("POST", _batch_path(batch_id, "cancel"), _nothing)


def resume_batch(batch_id: str, *, failed_only: bool) -> Call[Batch]:
    return Call("POST", _batch_path(batch_id, "resume"), _batch, body={"failed_only": failed_only}, repeatable=False)


def delete_batch(batch_id: str) -> Call[None]:
    return Call("DELETE", _batch_path(batch_id), _nothing, repeatable=False)
