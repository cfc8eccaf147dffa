"""Fakes of external systems; each is a real server or client with scripted behaviour."""

from tests.fakes.llm import Cuts, Fails, Garbage, Says, ScriptedLLM, Stalls, Turn
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
    "Cuts",
    "Fails",
    "FakeExpert",
    "Garbage",
    "Says",
    "ScriptedLLM",
    "ScriptedOrchestrator",
    "ScriptedRun",
    "ScriptedSelector",
    "Stalls",
    "Turn",
    "card",
    "echo",
]
