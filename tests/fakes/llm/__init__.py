"""An OpenAI-compatible server that says what a script tells it, over real HTTP."""

from tests.fakes.llm.server import ScriptedLLM
from tests.fakes.llm.turns import Cuts, Fails, Garbage, Says, Script, Stalls, Turn

__all__ = ["Cuts", "Fails", "Garbage", "Says", "Script", "ScriptedLLM", "Stalls", "Turn"]
