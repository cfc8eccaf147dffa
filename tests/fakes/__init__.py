"""Stand-ins for what tests cannot have; each is a server or a client of the real thing."""

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
