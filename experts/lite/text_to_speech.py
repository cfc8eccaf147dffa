"""Text to speech (espeak-ng), in a separate process: see espeak.py."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from experts.host.handler import Handler, Inputs, Media, Outputs, Parameters, single
from experts.host.isolation import current_limits
from experts.host.isolation.limits import MEMORY, PROCESSOR, WALL, limit_exceeded
from experts.lite.language_detection import Identifier, identifier, names
from experts.lite.sentences import required
from services.common.errors import InvalidRequest, ModelFailed

MAX_CHARACTERS = 20_000

_PROGRAM = Path(__file__).with_name("espeak.py")
_FILE = "the text"
_REFUSED, _NO_MEMORY = 2, 3
_SURE = 0.9
_DEFAULT = "en-us"
_GREETING = "Ready."


def text_to_speech(_model_id: str, _device: str) -> Handler:
    """Synthesizes a word to check that the engine and its voice files are installed."""
    languages = identifier.get()

    def speak(inputs: Inputs, parameters: Parameters) -> Outputs:
        text = required(inputs["text"], "text")
        if len(text) > MAX_CHARACTERS:
            raise InvalidRequest(
                f"The text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are spoken at once.",
                remedy="Send it in parts, or summarize it first.",
                port="text",
            )
        order = {
            "languages": _languages(text, str(parameters.get("language", "")), languages),
            "voice": str(parameters.get("voice", "")),
            "speed": float(parameters.get("speed", 1.0)),
        }
        return {"audio": Media(_spoken(order, text), "audio/wav", "speech.wav")}

    _spoken({"languages": [_DEFAULT], "voice": "", "speed": 1.0}, _GREETING)
    return single(speak)


def _languages(text: str, asked: str, languages: Identifier) -> list[str]:
    """Returns the requested language or, without one, the detected language followed by the default."""
    if asked:
        return [next((tag for tag, name in names().items() if name.lower() == asked.lower()), asked)]
    tag, probability = languages.rank(text)[0]
    foreign = sum(not letter.isascii() for letter in text) > len(text) / 2
    return [tag, _DEFAULT] if tag != "en" and (probability > _SURE or foreign) else [_DEFAULT]


def _spoken(order: dict[str, object], text: str) -> bytes:
    """A WAV file. The child reads the order, then the text; its command line has neither.

    Raises:
        InvalidRequest: DECODE_LIMIT, or the order cannot be followed.
        ModelFailed: espeak-ng failed.
    """
    limits = current_limits()
    order |= {"memory_bytes": limits.memory_bytes, "cpu_seconds": limits.cpu_seconds}
    message = json.dumps(order).encode() + b"\n" + text.encode("utf-8", errors="replace")
    command, seconds = [sys.executable, "-I", str(_PROGRAM)], limits.wall_seconds
    try:
        child = subprocess.run(command, input=message, capture_output=True, timeout=seconds, check=False)  # noqa: S603  # our own program, nothing of the caller's in the arguments
    except subprocess.TimeoutExpired:
        raise limit_exceeded(WALL, limits, file=_FILE, port="text") from None
    if child.returncode == -signal.SIGXCPU:
        raise limit_exceeded(PROCESSOR, limits, file=_FILE, port="text")
    if child.returncode == _NO_MEMORY:
        raise limit_exceeded(MEMORY, limits, file=_FILE, port="text")
    if child.returncode == _REFUSED:
        refusal = json.loads(child.stderr.decode().splitlines()[-1])
        raise InvalidRequest(refusal["message"], remedy=refusal["remedy"], port=refusal["port"])
    if child.returncode or not child.stdout:
        raise ModelFailed(f"espeak-ng ended with status {child.returncode}.", remedy="Try again, or another text.")
    return child.stdout
