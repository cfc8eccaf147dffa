"""Python client of a gateway.

    client = HuggingGPT()
    run = client.ask("Read the text in this image aloud", ["sign.png"])
    print(run.answer, client.save(run, "out"))

    client.save_pipeline("read-aloud", run)
    client.ask(pipeline="read-aloud", files=["another.png"])

AsyncHuggingGPT has the same methods as coroutines.
"""

from gateway.client.aio import AsyncHuggingGPT
from gateway.client.attachments import Attachment, FileId, Source, Url
from gateway.client.batch_items import Item
from gateway.client.errors import (
    Conflict,
    Damaged,
    Forbidden,
    HuggingGPTError,
    InvalidRequest,
    NoGateway,
    NotFound,
    RateLimited,
    Refused,
    ServerError,
    Unauthenticated,
    Unreachable,
)
from gateway.client.models import (
    Artifact,
    Batch,
    BatchCounts,
    BatchItem,
    BatchResult,
    BatchSummary,
    Candidate,
    Conversation,
    Event,
    Failure,
    Model,
    Page,
    Pipeline,
    Port,
    Result,
    Run,
    StoredFile,
    TaskKind,
    TaskStatus,
)
from gateway.client.options import BatchOptions, Budget, Constraints, Given, Json, Options
from gateway.client.sync import HuggingGPT

__all__ = [
    "Artifact",
    "AsyncHuggingGPT",
    "Attachment",
    "Batch",
    "BatchCounts",
    "BatchItem",
    "BatchOptions",
    "BatchResult",
    "BatchSummary",
    "Budget",
    "Candidate",
    "Conflict",
    "Constraints",
    "Conversation",
    "Damaged",
    "Event",
    "Failure",
    "FileId",
    "Forbidden",
    "Given",
    "HuggingGPT",
    "HuggingGPTError",
    "InvalidRequest",
    "Item",
    "Json",
    "Model",
    "NoGateway",
    "NotFound",
    "Options",
    "Page",
    "Pipeline",
    "Port",
    "RateLimited",
    "Refused",
    "Result",
    "Run",
    "ServerError",
    "Source",
    "StoredFile",
    "TaskKind",
    "TaskStatus",
    "Unauthenticated",
    "Unreachable",
    "Url",
]
