"""Speech synthesis program: reads a line of JSON and a text from stdin, and writes a WAV file to stdout.

Only this program loads espeak-ng, which is GPL-3.0-or-later: no module imports this file, and it imports no other
module of this project. For an invalid request it exits with status 2 and writes one line of JSON to stderr.
"""

import ctypes
import io
import json
import math
import re
import resource
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

SYNCHRONOUS = 2
UTF8 = 1
RATE, RATE_NORMAL = 1, 175
INVALID_REQUEST, OUT_OF_MEMORY = 2, 3
VARIANTS = {"female": "f2", "woman": "f2", "girl": "f2", "male": "m3", "man": "m3", "boy": "m3"}
PREFERRED = {"en": "en-us", "zh": "cmn"}
LOWEST_PRIORITY = 99
MIN_BYTES = 1000
"""Minimum bytes of audio; less is only the click that a full stop produces."""


class Voice(ctypes.Structure):
    """espeak_VOICE of the library's header."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    )


def main() -> None:
    """Reads the request and writes the audio; exits with status 3 if the text takes too much memory."""
    request = json.loads(sys.stdin.buffer.readline())
    limit_resources(request["memory_bytes"], request["cpu_seconds"])
    text = sys.stdin.buffer.read().replace(b"\0", b" ")
    library, data, rate = load_library()
    known = dict(list_voices(library))
    base, variant = choose_voice(request["languages"], request["voice"], known, data)
    library.espeak_SetVoiceByName(f"{base}+{variant}".rstrip("+").encode())
    library.espeak_SetParameter(RATE, round(RATE_NORMAL * request["speed"]), 0)
    samples = synthesize(library, text)
    if len(samples) < MIN_BYTES:
        exit_invalid("the text contains nothing that can be spoken", "send a text with words in it", "text")
    sys.stdout.buffer.write(wav(samples, rate))


def limit_resources(memory_bytes: int, cpu_seconds: float) -> None:
    """Limits processor time and address space beyond what is mapped now."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + cpu_seconds), resource.RLIM_INFINITY))
    statm = Path("/proc/self/statm")
    if statm.exists():
        mapped = int(statm.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_bytes, resource.RLIM_INFINITY))


def load_library() -> tuple[Any, Path, int]:
    """Returns the library, its data folder and its sample rate."""
    import espeakng_loader

    library, data = ctypes.CDLL(espeakng_loader.get_library_path()), Path(espeakng_loader.get_data_path())
    rate = library.espeak_Initialize(SYNCHRONOUS, 0, str(data).encode(), 0)
    if rate <= 0:
        sys.exit("espeak-ng cannot find its data files")
    return library, data, rate


def list_voices(library: Any) -> Iterator[tuple[str, str]]:
    """Maps language tags and names in lower case to voices; the first voice of a tag is preferred."""
    library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(Voice))
    pointers, found, index = library.espeak_ListVoices(None), [], 0
    while pointers[index]:
        entry = pointers[index].contents
        voice_id = Path(entry.identifier.decode()).name.lower()
        found += [(priority, tag.lower(), voice_id) for priority, tag in parse_languages(entry.languages)]
        found.append((LOWEST_PRIORITY, entry.name.decode().strip().lower(), voice_id))
        index += 1
    yield from ((tag, voice_id) for _, tag, voice_id in sorted(found, reverse=True))


def parse_languages(address: int) -> Iterator[tuple[int, str]]:
    """Parses pairs of a one-byte priority and a zero-terminated tag, until a priority of zero."""
    while priority := ctypes.c_ubyte.from_address(address).value:
        tag = ctypes.string_at(address + 1)
        yield priority, tag.decode()
        address += len(tag) + 2


def choose_voice(languages: list[str], voice_name: str, known: dict[str, str], data: Path) -> tuple[str, str]:
    """Returns the voice of the first supported language, with its variant."""
    variants = {entry.name.lower(): entry.name for entry in (data / "voices" / "!v").iterdir()}
    requested = voice_name.strip().lower()
    variant = variants.get(VARIANTS.get(requested, requested), "")
    if requested and not variant:
        return find_voice(requested, known) or exit_invalid(
            f"there is no voice {voice_name}",
            f"use female, male, a language such as en-gb, or one of {', '.join(sorted(variants))}",
            "parameters.voice",
        ), ""
    for language in languages:
        if base := find_voice(language, known):
            return base, variant
    message, remedy = f"there is no voice for the language {languages[0]}", "use one of " + format_tags(known)
    return exit_invalid(message, remedy, "parameters.language")


def find_voice(language: str, known: dict[str, str]) -> str:
    """Finds a voice by tag, by the first part of a tag, by name or by the start of a name."""
    tag = language.strip().lower().replace("_", "-")
    short = tag.split("-")[0]
    name_matches = (name for name in sorted(known) if len(tag) > len("eng") and name.startswith(tag))
    exact = PREFERRED.get(tag) or known.get(tag)
    return exact or PREFERRED.get(short) or known.get(short) or known.get(next(name_matches, ""), "")


def format_tags(known: dict[str, str]) -> str:
    return ", ".join(sorted(tag for tag in known if re.fullmatch(r"[a-z]{2,3}", tag)))


def synthesize(library: Any, text: bytes) -> bytes:
    """Returns 16-bit samples in one channel."""
    chunks: list[bytes] = []

    def collect(samples: int | None, count: int, _events: int | None) -> int:
        if samples and count:
            chunks.append(ctypes.string_at(samples, 2 * count))
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(collect)
    library.espeak_SetSynthCallback(callback)
    if library.espeak_Synth(text, ctypes.c_size_t(len(text) + 1), 0, 1, 0, UTF8, None, None):
        sys.exit("espeak-ng cannot synthesize the text")
    library.espeak_Synchronize()
    return b"".join(chunks)


def wav(samples: bytes, rate: int) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)
    return buffer.getvalue()


def exit_invalid(message: str, remedy: str, port: str) -> NoReturn:
    """Writes the error for the caller as JSON to stderr, and exits."""
    sys.stderr.write(json.dumps({"message": message, "remedy": remedy, "port": port}) + "\n")
    sys.exit(INVALID_REQUEST)


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
