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
    Candidate,
    Conversation,
    Event,
    Failure,
    KeptFile,
    Model,
    Page,
    Port,
    Result,
    Run,
    TaskKind,
    TaskStatus,
)
from gateway.client.options import Budget, Constraints, Options
from gateway.client.pipelines.items import Item
from gateway.client.pipelines.models import Batch, BatchCounts, BatchItem, BatchResult, BatchSummary, Pipeline
from gateway.client.pipelines.options import BatchOptions
from gateway.client.sync import HuggingGPT
from gateway.client.values import Given, Json

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
    "KeptFile",
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
    "TaskKind",
    "TaskStatus",
    "Unauthenticated",
    "Unreachable",
    "Url",
]
