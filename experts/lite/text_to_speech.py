"""Text to speech (espeak-ng), in a separate process: see espeak.py."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from experts.host.handler import Handler, Inputs, Media, Outputs, Parameters, single
from experts.host.isolation import current_limits
from experts.host.isolation.limits import MEMORY, PROCESSOR, WALL, limit_error
from experts.lite.language_detection import LanguageDetector, language_detector, load_language_names
from experts.lite.text_processing import require_text
from services.common.errors import InvalidRequest, ModelFailed

MAX_CHARACTERS = 20_000

_PROGRAM = Path(__file__).with_name("espeak.py")
_FILE = "the text"
_INVALID_REQUEST, _OUT_OF_MEMORY = 2, 3
_MIN_PROBABILITY = 0.9
_DEFAULT_LANGUAGE = "en-us"
_WARM_UP_TEXT = "Ready."


def text_to_speech(_model_id: str, _device: str) -> Handler:
    """Synthesizes a word to check that the engine and its voice files are installed."""
    detector = language_detector.get()

    def speak(inputs: Inputs, parameters: Parameters) -> Outputs:
        text = require_text(inputs["text"], "text")
        if len(text) > MAX_CHARACTERS:
            raise InvalidRequest(
                f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are spoken at once",
                remedy="send it in parts, or summarize it first",
                port="text",
            )
        request = {
            "languages": _choose_languages(text, str(parameters.get("language", "")), detector),
            "voice": str(parameters.get("voice", "")),
            "speed": float(parameters.get("speed", 1.0)),
        }
        return {"audio": Media(_synthesize(request, text), "audio/wav", "speech.wav")}

    _synthesize({"languages": [_DEFAULT_LANGUAGE], "voice": "", "speed": 1.0}, _WARM_UP_TEXT)
    return single(speak)


def _choose_languages(text: str, requested: str, detector: LanguageDetector) -> list[str]:
    """Returns the requested language or, without one, the detected language followed by the default."""
    if requested:
        return [
            next((tag for tag, name in load_language_names().items() if name.lower() == requested.lower()), requested)
        ]
    tag, probability = detector.rank(text)[0]
    foreign = sum(not letter.isascii() for letter in text) > len(text) / 2
    return (
        [tag, _DEFAULT_LANGUAGE] if tag != "en" and (probability > _MIN_PROBABILITY or foreign) else [_DEFAULT_LANGUAGE]
    )


def _synthesize(request: dict[str, object], text: str) -> bytes:
    """Returns a WAV file. The child process reads the request and the text from stdin, never from its command line.

    Raises:
        InvalidRequest: DECODE_LIMIT, or the child process rejects the request.
        ModelFailed: espeak-ng failed.
    """
    limits = current_limits()
    request |= {"memory_bytes": limits.memory_bytes, "cpu_seconds": limits.cpu_seconds}
    message = json.dumps(request).encode() + b"\n" + text.encode("utf-8", errors="replace")
    command, seconds = [sys.executable, "-I", str(_PROGRAM)], limits.wall_seconds
    try:
        child = subprocess.run(command, input=message, capture_output=True, timeout=seconds, check=False)  # noqa: S603  # a program of this package; no argument comes from the caller
    except subprocess.TimeoutExpired:
        raise limit_error(WALL, limits, file=_FILE, port="text") from None
    if child.returncode == -signal.SIGXCPU:
        raise limit_error(PROCESSOR, limits, file=_FILE, port="text")
    if child.returncode == _OUT_OF_MEMORY:
        raise limit_error(MEMORY, limits, file=_FILE, port="text")
    if child.returncode == _INVALID_REQUEST:
        error = json.loads(child.stderr.decode().splitlines()[-1])
        raise InvalidRequest(error["message"], remedy=error["remedy"], port=error["port"])
    if child.returncode or not child.stdout:
        raise ModelFailed(f"espeak-ng exited with status {child.returncode}", remedy="try again, or send another text")
    return child.stdout
