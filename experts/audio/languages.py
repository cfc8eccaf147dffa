"""Languages of speech, as people name them and as models do."""

from collections.abc import Sequence

from experts.host.parameters import port_of
from services.common.errors import InvalidRequest

_TAGS = {"mandarin": "zh", "castilian": "es", "hebrew": "he", "filipino": "tl", "norwegian": "no"}
_SHOWN = 8
_THREE = (
    "ar:ara bg:bul bn:ben ca:cat cs:ces cy:cym da:dan de:deu el:ell en:eng es:spa et:est eu:eus fa:fas fi:fin fr:fra "
    "gl:glg gu:guj ha:hau he:heb hi:hin hr:hrv hu:hun id:ind is:isl it:ita ja:jpn ka:kat kk:kaz kn:kan ko:kor la:lat "
    "lt:lit lv:lav ml:mal mn:mon mr:mar ms:zlm nl:nld no:nob pa:pan pl:pol pt:por ro:ron ru:rus sk:slk sl:slv so:som "
    "sq:sqi sr:srp sv:swe sw:swh ta:tam te:tel th:tha tl:tgl tr:tur uk:ukr ur:urd vi:vie yo:yor zh:cmn"
)
"""BCP 47 and how MMS tags the same languages."""


def spoken_language(said: str, known: Sequence[str], model_id: str) -> str:
    """The model's tag of the language in a request; empty if none is named, or the model has only one.

    Raises:
        InvalidRequest: the model does not know it.
    """
    from transformers.models.whisper.tokenization_whisper import LANGUAGES, TO_LANGUAGE_CODE

    name = said.strip().casefold().replace("_", "-")
    if not name:
        return ""
    tag = TO_LANGUAGE_CODE.get(name) or _TAGS.get(name) or name.partition("-")[0]
    if not known and tag == "en":
        return ""
    if tag in known:
        return tag
    shown = [*(LANGUAGES.get(one, one).title() for one in known[:_SHOWN]), *(["…"] if known[_SHOWN:] else [])]
    raise InvalidRequest(
        f"{model_id} does not know the language {said[:40]!r}",
        port=port_of("language"),
        remedy=f"leave it out, or choose among those it knows: {', '.join(shown or ['English'])}",
    )


def three_letters(said: str) -> str:
    """How MMS tags a language: eng for English, en, en-US and eng alike; as it stands if it is none we know."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    name = said.strip().casefold().replace("_", "-")
    tag = TO_LANGUAGE_CODE.get(name) or _TAGS.get(name) or name.partition("-")[0]
    return dict(pair.split(":") for pair in _THREE.split()).get(tag, tag)
