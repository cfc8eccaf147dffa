"""Fakes of external systems; each is a real server or client with scripted behaviour."""

from tests.fakes.llm import ErrorReply, RawReply, ScriptedLLM, ScriptedReply, StalledReply, TextReply, TruncatedReply
from tests.fakes.services import (
    ANSWERED,
    Answer,
    FakeExpert,
    ScriptedOrchestrator,
    ScriptedRun,
    ScriptedSelector,
    card,
    echo,
)

__all__ = [
    "ANSWERED",
    "Answer",
    "ErrorReply",
    "FakeExpert",
    "RawReply",
    "ScriptedLLM",
    "ScriptedOrchestrator",
    "ScriptedReply",
    "ScriptedRun",
    "ScriptedSelector",
    "StalledReply",
    "TextReply",
    "TruncatedReply",
    "card",
    "echo",
]
