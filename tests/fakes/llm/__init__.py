"""An OpenAI-compatible HTTP server with scripted replies."""

from tests.fakes.llm.scripted_replies import (
    ErrorReply,
    RawReply,
    Script,
    ScriptedReply,
    StalledReply,
    TextReply,
    TruncatedReply,
)
from tests.fakes.llm.server import ScriptedLLM

__all__ = [
    "ErrorReply",
    "RawReply",
    "Script",
    "ScriptedLLM",
    "ScriptedReply",
    "StalledReply",
    "TextReply",
    "TruncatedReply",
]
