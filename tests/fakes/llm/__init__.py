"""An OpenAI-compatible HTTP server with scripted replies."""

from tests.fakes.llm.scripted_replies import Cuts, Fails, Garbage, Says, Script, Stalls, Turn
from tests.fakes.llm.server import ScriptedLLM

__all__ = ["Cuts", "Fails", "Garbage", "Says", "Script", "ScriptedLLM", "Stalls", "Turn"]
