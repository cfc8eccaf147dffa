"""Speech from text (espeak-ng), in a process of its own: see espeak.py."""

import json
import subprocess
import sys
from pathlib import Path

from experts.host.handler import Handler, Inputs, Media, Outputs, Parameters, single
from experts.lite.languages import Identifier, identifier, names
from experts.lite.sentences import required
from services.runtime.errors import InvalidRequest, ModelFailed

MAX_CHARACTERS = 20_000

_PROGRAM = Path(__file__).with_name("espeak.py")
_SECONDS = 60
_REFUSED = 2
_SURE = 0.9
_DEFAULT = "en-us"
_GREETING = "Ready."


def text_to_speech(_model_id: str, _device: str) -> Handler:
    """Speaks a word to see that the engine is there and the voice files with it."""
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
    """What was asked for and nothing else; else the language the text seems to be in, then the default."""
    if asked:
        return [next((tag for tag, name in names().items() if name.lower() == asked.lower()), asked)]
    tag, probability = languages.rank(text)[0]
    foreign = sum(not letter.isascii() for letter in text) > len(text) / 2
    return [tag, _DEFAULT] if tag != "en" and (probability > _SURE or foreign) else [_DEFAULT]


def _spoken(order: dict[str, object], text: str) -> bytes:
    """A WAV file. The child reads the order, then the text; it is told neither on its command line."""
    message = json.dumps(order).encode() + b"\n" + text.encode("utf-8", errors="replace")
    try:
        child = subprocess.run(  # noqa: S603  # our own program, nothing of the caller's in the arguments
            [sys.executable, "-I", str(_PROGRAM)], input=message, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelFailed(f"espeak-ng did not end within {_SECONDS} s.", remedy="Send a shorter text.") from error
    if child.returncode == _REFUSED:
        refusal = json.loads(child.stderr.decode().splitlines()[-1])
        raise InvalidRequest(refusal["message"], remedy=refusal["remedy"], port=refusal["port"])
    if child.returncode or not child.stdout:
        raise ModelFailed(f"espeak-ng ended with status {child.returncode}.", remedy="Try again, or another text.")
    return child.stdout
