"""Converts names and tags of spoken languages to the codes of speech models."""

from collections.abc import Sequence

from experts.host.input_validation import parameter_port
from services.common.errors import InvalidRequest

_TAGS = {"mandarin": "zh", "castilian": "es", "hebrew": "he", "filipino": "tl", "norwegian": "no"}
_MAX_LISTED = 8
_ISO_639_3 = (
    "ar:ara bg:bul bn:ben ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng es:spa et:est eu:eus fa:fas fi:fin fr:fra "
    "gl:glg gu:guj ha:hau he:heb hi:hin hr:hrv hu:hun id:ind is:isl it:ita ja:jpn ka:kat kk:kaz kn:kan ko:kor la:lat "
    "lt:lit lv:lav ml:mal mn:mon mr:mar ms:zlm nl:nld no:nob pa:pan pl:pol pt:por ro:ron ru:rus sk:slk sl:slv so:som "
    "sq:sqi sr:srp sv:swe sw:swh ta:tam te:tel th:tha tl:tgl tr:tur uk:ukr ur:urd vi:vie yo:yor zh:cmn"
)
"""BCP 47 tags with the ISO 639-3 codes that MMS uses."""


def resolve_language(language: str, supported: Sequence[str], model_id: str) -> str:
    """Returns the model's code for a language; empty if the name is empty, or the model has only English.

    Args:
        language: name or tag, as in a request.
        supported: codes of the model; empty if it has only English.
        model_id: for messages.

    Raises:
        InvalidRequest: the model does not support the language.
    """
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    if not language.strip():
        return ""
    tag = _bcp_47(language)
    if not supported and tag == "en":
        return ""
    if tag in supported:
        return tag
    listed = [
        *(LANGUAGES.get(code, code).title() for code in supported[:_MAX_LISTED]),
        *(["…"] if supported[_MAX_LISTED:] else []),
    ]
    raise InvalidRequest(
        f"{model_id} does not support the language {language[:40]!r}",
        port=parameter_port("language"),
        remedy=f"omit it, or choose among: {', '.join(listed or ['English'])}",
    )


def to_iso_639_3(language: str) -> str:
    """Returns the ISO 639-3 code of a language: eng for English, en, en-US and eng; an unknown one unchanged."""
    tag = _bcp_47(language)
    return dict(pair.split(":") for pair in _ISO_639_3.split()).get(tag, tag)


def _bcp_47(language: str) -> str:
    """Returns the primary tag of a language's name or tag; empty if the name is empty."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    name = language.strip().casefold().replace("_", "-")
    return TO_LANGUAGE_CODE.get(name) or _TAGS.get(name) or name.partition("-")[0]
