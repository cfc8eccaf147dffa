"""The Python client of a gateway.

    house = HuggingGPT()
    run = house.ask("Read the text in this image aloud", ["sign.png"])
    print(run.answer, house.save(run, "out"))

AsyncHuggingGPT has the same methods, awaited.
"""

from gateway.client.aio import AsyncHuggingGPT
from gateway.client.attachments import Attachment, Source
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
from gateway.client.sync import HuggingGPT

__all__ = [
    "Artifact",
    "AsyncHuggingGPT",
    "Attachment",
    "Budget",
    "Candidate",
    "Conflict",
    "Constraints",
    "Conversation",
    "Damaged",
    "Event",
    "Failure",
    "Forbidden",
    "HuggingGPT",
    "HuggingGPTError",
    "InvalidRequest",
    "KeptFile",
    "Model",
    "NoGateway",
    "NotFound",
    "Options",
    "Page",
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
]
