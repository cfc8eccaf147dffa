"""Describes the result of a task in a sentence: by task name where known, else by its outputs."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from services.responder.markdown import describe_file, format_percent, inline, inline_full, join_list, quote
from services.responder.run_summary import Json, Task

CONFIDENT = 0.8
"""Confidence below which a transcript is described as rough."""

UNSURE = 0.6
"""Score below which an answer is described as a guess."""

GUESS = "This is a guess"
"""How the sentence on a low score begins."""

DOUBTFUL_LINE = 0.96
"""Score below which a line that OCR read is marked: of 254 lines of blurred and noisy pictures, read by rapidocr, 72 %
of the wrong ones and 1.3 % of the right ones had a lower score."""

MAX_LISTED = 12
"""Limit of listed findings of one kind."""

MAX_JSON_LENGTH = 600

_TRANSCRIPTION = "automatic-speech-recognition"
_DESCRIBING = "The model that looked only reads: to have pictures described, add an expert that captions them."
_BETTER_TRANSCRIPT = "A Whisper-class model does far better: add an expert that serves one, and it is chosen by itself."
_LEAD = re.compile(
    r"^(?:(?:and|also|then|please|can you|could you|tell me|tell us|say|find out|check|determine|know|let me know"
    r"|i want(?: to know)?|detect|identify|classify)\s+)+",
    re.IGNORECASE,
)
_ONLY_PEOPLE = re.compile(r"(?:no|\d+) (faces?|people|persons?)", re.IGNORECASE)
_ABOUT_PEOPLE = re.compile(
    r"\b(?:faces?|people|persons?|humans?|man|men|woman|women|guys?|child(?:ren)?|kids?|babies|baby|heads?|crowd|friends?|family"
    r"|anyone|anybody|someone|somebody|everyone|everybody|who|objects?|things?|everything|anything|what|we|us"
    r"|gesicht\w*|personen|person|leute|menschen|kinder|visages?|personnes?|gens|enfants?"
    r"|caras?|rostros?|personas?|gente|niños?)\b"
    r"|사람|얼굴|명|人|脸|面孔|物",
    re.IGNORECASE,
)
"""Words of requests about people, or about all that there is, in the languages of the planner."""
_KINDS_OF_PEOPLE = re.compile(
    r"\b(?:men|man|women|woman|boys?|girls?|child(?:ren)?|kids?|bab(?:y|ies)|who(?:'s|\s+(?:is|are)))\b"
    r"|\b(?:männer|frauen|kinder|hommes|femmes|enfants|hombres|mujeres|niños|wer|qui|quién)\b|남자|여자|아이|男人|女人|孩子|谁",
    re.IGNORECASE,
)
"""Words for kinds of people, which a detector of people cannot tell apart."""
_ABOUT_NOISE = re.compile(
    r"nois|clean|hiss|\bhum|background|clear|quality|enhanc|improv|better|sound.*(?:good|nice)|hear|understand|static|crackl"
    r"|rausch|störge|säuber|bruit|souffle|nettoy|ruido|limpi|mejor|amélior|besser|잡음|소음|노이즈|깨끗|噪|杂音|清",
    re.IGNORECASE,
)
"""Words of requests for less noise, in the languages of the planner."""
_UNTAUGHT_CLASSES = re.compile(
    r"\b(?:spam|phishing|a scam|toxic|offensive|abusive|hateful|hate speech|fake|sarcastic|ironic|urgent|formal)\b",
    re.IGNORECASE,
)
"""Classes that a classifier tells only if it names them."""
_KINDS = {
    "per": "people",
    "person": "people",
    "org": "organisations",
    "loc": "places",
    "gpe": "places",
    "date": "dates",
    "time": "times",
    "money": "amounts of money",
    "address": "addresses",
    "email": "e-mail addresses",
    "phone": "phone numbers",
    "url": "URLs",
    "percent": "percentages",
    "misc": "other names",
}
_ASKED_KINDS = {
    name: (re.compile(rf"\b(?:{asked})\b" + (f"|{cjk}" if cjk else ""), re.IGNORECASE), frozenset(kinds.split()))
    for name, asked, cjk, kinds in (
        (
            "amounts of money",
            r"prices?|amounts?|money|costs?|sums?|beträge|preise|montants|prix|importes|precios",
            "금액|가격|金额|价格",
            "money",
        ),
        (
            "phone numbers",
            (
                r"(?:(?:tele)?phone|mobile|contact|fax)(?: and \w+)? numbers?|telephones?|telefonnummern?"
                r"|numéros? de téléphone|teléfonos?"
            ),
            "전화|电话",
            "phone",
        ),
        (
            "e-mail addresses",
            r"e-?mail addresses|e-?mails?|e-?mail-adressen?|correos?|courriels?",
            "이메일|邮箱|邮件",
            "email",
        ),
        (
            "addresses",
            r"(?<!mail )(?<!mail-)(?:street |postal )?address(?:es)?|adressen|adresses",
            "주소|地址",
            "address email",
        ),
        ("links", r"links?|urls?|web ?(?:sites?|pages?|addresses)", "链接|링크", "url"),
        ("dates", r"dates?|deadlines?|appointments?|termine|fechas", "날짜|日期", "date"),
        ("times", r"times?|uhrzeiten|heures|horas", "시간|时间", "time"),
        ("percentages", r"percentages?|percents?", "퍼센트|百分比", "percent"),
        (
            "organisations",
            r"compan(?:y|ies)|organi[sz]ations?|firms?|firmen|entreprises|empresas",
            "회사|公司",
            "org",
        ),
        (
            "places",
            r"places?|cit(?:y|ies)|towns?|countr(?:y|ies)|locations?|orte|städte|länder|lieux|villes|pays|lugares|ciudades",
            "장소|도시|나라|地点|城市|国家",
            "loc gpe",
        ),
        (
            "people",
            r"people|persons?|who|whom|attendees|participants|employees|colleagues|guests|personen|personnes|personas",
            "사람|人名|人物",
            "per person",
        ),
    )
}
"""How requests name kinds, and what models call them."""
_ASKED_NAMES = re.compile(r"\b(?:names?|namen|noms?|nombres)\b|이름|名字", re.IGNORECASE)
_NAMED = {
    "people": frozenset(("per", "person")),
    "organisations": frozenset(("org",)),
    "places": frozenset(("loc", "gpe")),
}
"""Kinds that have names."""
_ALL_KINDS = re.compile(
    r"\b(?:entit(?:y|ies)|everything|anything|details|information|info|data|facts|when|where|what kinds?)\b",
    re.IGNORECASE,
)
"""Words of requests for more than the kinds that they name."""
_SOURCE_MAIL = re.compile(
    r"\b(?:in|from|of|on|inside|within|through)\s+(?:(?:this|that|these|those|the|my|our|both|an?|all)\s+)+(?:\w+\s+)?e-?mails?\b(?!\s+address)",
    re.IGNORECASE,
)
"""A mail that something is to be found in."""
_SURE_NAME = 0.95
"""Score from which names are found by a trained model; rules and lists miss more."""
_PARTS = re.compile(r"[,;&+]|\b(?:and|or|plus)\b")
_POLITE = re.compile(r"\W*(?:(?:please|pls|thanks|thank you|hi|hello|hey|ok|only|nothing else)\W*)*", re.IGNORECASE)


def describe_result(task: Task) -> str:
    """Describes the result of a successful task."""
    describe = _DESCRIPTIONS.get(task.name)
    words = describe(task) if describe else ""
    return words or _describe_any(task)


def _describe_ocr(task: Task) -> str:
    subject = _subject(task, "The picture")
    details = task.data("details")
    pages = details.get("pages") if isinstance(details, dict) else None
    if isinstance(pages, list) and pages and not any(isinstance(page, dict) and page.get("lines") for page in pages):
        return f"No text was found{_in(task)}. {_DESCRIBING}"
    if isinstance(pages, list) and len(pages) > 1:
        subject += f" ({len(pages)} pages)"
    if not task.text:
        return ""
    text, is_doubtful = _mark_doubtful_lines(task.text, pages if isinstance(pages, list) else [])
    hint = "\n\nLines that end with (?) were hard to read: check them against the picture." if is_doubtful else ""
    return f"{subject} says:{_quote_text(task, text)}{hint}"


def _mark_doubtful_lines(text: str, pages: Sequence[Any]) -> tuple[str, bool]:
    """Appends (?) to the lines with low scores; returns the text, and whether any line is marked."""
    ends: set[int] = set()
    for words in _doubtful_lines(pages):
        places = re.finditer(rf"(?<!\S){re.escape(words)}(?!\S)", text)
        ends.update(itertools.islice((place.end() for place in places if place.end() not in ends), 1))
    bounds = [0, *sorted(ends), len(text)]
    return " (?)".join(text[start:end] for start, end in itertools.pairwise(bounds)), bool(ends)


def _doubtful_lines(pages: Sequence[Any]) -> Iterator[str]:
    for page in pages:
        for line in (page.get("lines") or ()) if isinstance(page, dict) else ():
            score = line.get("score")
            if isinstance(line.get("text"), str) and isinstance(score, int | float) and score < DOUBTFUL_LINE:
                yield line["text"]


def is_rough_transcript(task: Task) -> bool:
    """Whether a task transcribed a recording, and many of the words may be wrong."""
    details = task.data("details")
    if task.name != _TRANSCRIPTION or not isinstance(details, dict):
        return False
    confidence = details.get("confidence")
    return details.get("quality") == "rough" or (isinstance(confidence, int | float) and confidence < CONFIDENT)


def _describe_transcript(task: Task) -> str:
    if not task.text:
        return ""
    details = task.data("details")
    details = details if isinstance(details, dict) else {}
    confidence = details.get("confidence")
    if not is_rough_transcript(task):
        return f"{_subject(task, 'The recording')} says:{_text(task)}"
    confidence_text = f", {format_percent(confidence)} sure" if format_percent(confidence) else ""
    transcript = f"Rough transcript{_of(task)}{confidence_text}:{_text(task)}"
    return f"{transcript}\n\nMany words of it may be wrong. {_BETTER_TRANSCRIPT}"


def _describe_classes(task: Task) -> str:
    labels = [label for label in _records(task, "labels") if isinstance(label.get("label"), str)]
    if not labels:
        return ""
    best, others = labels[0], labels[1:3]
    asked = _UNTAUGHT_CLASSES.search(task.source)
    if asked and not any(asked[0].lower() in label["label"].lower() for label in labels):
        return (
            f"The model that looked cannot tell whether something is {asked[0].lower()}: it tells {_classes(labels)}."
        )
    confidence_text = format_percent(best.get("score"))
    question_text = f"{_question(task.source)}: " if task.source else ""
    rest = [f"{inline(other['label'])} {format_percent(other.get('score'))}".strip() for other in others]
    after = f"; then {join_list(rest)}" if rest else ""
    hint = _guess_hint(best.get("score"))
    return (
        f"{question_text}**{inline(best['label'])}**{f' ({confidence_text}{after})' if confidence_text else ''}.{hint}"
    )


def _classes(labels: Sequence[Mapping[str, Any]]) -> str:
    return join_list([inline(label["label"]) for label in labels[:MAX_LISTED]])


def _describe_entities(task: Task) -> str:
    asked = _asked_kinds(task.source)
    wanted = frozenset[str]().union(*asked.values())
    records = [entity for entity in _records(task, "entities") if isinstance(entity.get("text"), str)]
    entities = [one for one in records if not asked or str(one.get("entity")).lower() in wanted]
    kinds: dict[str, list[str]] = {}
    for entity in entities:
        mentioned = kinds.setdefault(inline(str(entity.get("entity") or "entity")), [])
        if (words := inline(entity["text"])) not in mentioned:
            mentioned.append(words)
    for kind, names in kinds.items():
        if kind.lower() in _NAMED["people"]:
            kinds[kind] = [name for name in names if not _is_part_of_name(name, names)]
    missing = join_list([name for name, of in asked.items() if not any(kind.lower() in of for kind in kinds)])
    if not entities and not missing:
        return f"No names, dates, places or amounts were found{_in(task)}."
    if not entities:
        return f"{_capitalised(missing)} could not be found{_in(task)}."
    lines = [f"- {_KINDS.get(kind.lower(), kind)}: {_listed(words)}" for kind, words in kinds.items()]
    lead = f"{_capitalised(missing)} could not be found. " if missing else ""
    return f"{lead}Found{_in(task)}:\n\n" + "\n".join(lines) + _doubt_of_names(asked, entities)


def _asked_kinds(source: str) -> Mapping[str, frozenset[str]]:
    """The kinds that a request names, with what models call them; none if it is about all kinds."""
    words = _SOURCE_MAIL.sub(" ", source)
    if _ALL_KINDS.search(words):
        return {}
    parts = [part for part in _PARTS.split(words) if not _POLITE.fullmatch(part)]
    patterns = [_ASKED_NAMES, *(pattern for pattern, _ in _ASKED_KINDS.values())]
    if not all(any(pattern.search(part) for pattern in patterns) for part in parts):
        return {}  # a part may name another kind, or one with a typing error
    asked = {name: kinds for name, (pattern, kinds) in _ASKED_KINDS.items() if pattern.search(words)}
    if _ASKED_NAMES.search(words) and not asked.keys() & _NAMED.keys():
        asked["names"] = frozenset(("misc",)).union(*_NAMED.values())
    return asked


def _doubt_of_names(asked: Mapping[str, frozenset[str]], entities: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on names that may be missing, if a request asks for names and the model finds them by rules."""
    kinds = [name for name in asked if name in _NAMED or name == "names"]
    named = frozenset[str]().union(*_NAMED.values())
    scores = [one.get("score") for one in entities if str(one.get("entity")).lower() in named]
    if not kinds or (scores and all(isinstance(score, int | float) and score >= _SURE_NAME for score in scores)):
        return ""
    return f"\n\nIt is not certain that these are all {join_list(kinds)}: the model that looked may have missed some."


def _is_part_of_name(name: str, names: Sequence[str]) -> bool:
    return any(f" {name} " in f" {other} " for other in names if other != name)


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def has_answer(task: Task) -> bool:
    """Whether a task, if it answers a question, found an answer."""
    details = task.data("details")
    return not (isinstance(details, dict) and details.get("answer") == "")


def _describe_answer(task: Task) -> str:
    if not has_answer(task):
        return _describe_no_answer(task)
    if not task.text:
        return ""
    details = task.data("details")
    score = details.get("score") if isinstance(details, dict) else None
    question_text = f"{_without_mark(task.question)}? " if task.question else ""
    page = details.get("page") if isinstance(details, dict) else None
    where = f" (page {page})" if isinstance(page, int) and page > 1 else ""
    hint = _guess_hint(score)
    if "\n" in task.text or len(task.text) > len(inline(task.text)):
        return f"{question_text.rstrip()}{_text(task)}{where}{hint}"
    return f"{question_text}**{inline(task.text)}**{where}{hint}"


def _guess_hint(score: object) -> str:
    """A sentence that calls a result with a low score a guess; empty for others."""
    is_guess = isinstance(score, int | float) and 0 < score < UNSURE
    return f" {GUESS}: it is only {format_percent(score)} sure." if is_guess else ""


def _describe_no_answer(task: Task) -> str:
    """An answer that was not found is no fact about the text, which may well contain it."""
    question_text = f" to “{_without_mark(task.question)}?”" if task.question else ""
    return f"I found no answer{question_text}{_in(task)}."


def _without_mark(question: str) -> str:
    return inline(question).rstrip("?？.。!！ ")


def _describe_objects(task: Task) -> str:
    count = inline(task.text)
    pictures = _created_files(task)
    if not count:
        return ""
    if kind := _only_kind(task):
        return (
            f"The model that looked finds only {kind}: it cannot find anything else in {_subject(task, 'the picture')}."
        )
    where = f", marked in {pictures}" if pictures and _records(task, "objects") else ""
    limit = " The model that looked cannot tell them apart." if _KINDS_OF_PEOPLE.search(task.source) else ""
    return f"{_subject(task, 'The picture')} shows {count.rstrip('.')}{where}.{limit}"


def _only_kind(task: Task) -> str:
    """The only kind of thing a detector finds, if the request is about something else."""
    found = _ONLY_PEOPLE.fullmatch(inline(task.text).rstrip("."))
    return found[1] if found and task.source and not _ABOUT_PEOPLE.search(task.source) else ""


def _describe_summary(task: Task) -> str:
    return f"Summary{_of(task)}:{_text(task)}" if task.text else ""


def _describe_translation(task: Task) -> str:
    language = task.parameters.get("target_language")
    into = f" ({inline(language)})" if isinstance(language, str) else ""
    return f"Translation{into}{_of(task)}:{_text(task)}" if task.text else ""


def _describe_text(task: Task) -> str:
    return _text(task).strip() if task.text else ""


def _describe_new(what: str) -> Callable[[Task], str]:
    def describe(task: Task) -> str:
        files = _created_files(task)
        return f"{what}{_of(task)} is {files}." if files else ""

    return describe


def _describe_recording(task: Task) -> str:
    words = _describe_new("The new recording")(task)
    is_denoised = any("denoised" in artifact.name for artifact in task.artifacts)
    if words and is_denoised and task.source and not _ABOUT_NOISE.search(task.source):
        return f"{words} It only has less noise: the model that ran cannot change anything else."
    return words


def _describe_speech(task: Task) -> str:
    files = _created_files(task)
    return f"Read aloud in {files}." if files else ""


def _describe_statistics(default: str) -> Callable[[Task], str]:
    def describe(task: Task) -> str:
        return f"{_subject(task, default)} has {inline(task.text)}." if task.text else ""

    return describe


def _describe_calculation(task: Task) -> str:
    return f"{inline_full(task.text)}." if task.text else ""


def _describe_segments(task: Task) -> str:
    files = _created_files(task)
    return f"{inline(task.text).rstrip('.')}: {files}." if task.text and files else ""


def _describe_any(task: Task) -> str:
    """Describes any result: its text, else its data, then its files."""
    pieces = []
    if task.text:
        pieces.append(f"{task.name}{_of(task)}:{_text(task)}")
    else:
        data = {port: output.data for port, output in task.outputs.items() if isinstance(output, Json)}
        pieces += [f"{task.name}{_of(task)}, {inline(port)}:{_data(content)}" for port, content in sorted(data.items())]
    if files := _created_files(task):
        pieces.append(f"{task.name}{_of(task)} made {files}.")
    return "\n\n".join(pieces) or f"{task.name}{_of(task)} completed without output."


# ---------------------------------------------------------------- helpers


def _question(source: str) -> str:
    words = _LEAD.sub("", inline(source)).rstrip("?.! ") or inline(source)
    return words[:1].upper() + words[1:]


def _text(task: Task) -> str:
    return _quote_text(task, task.text)


def _quote_text(task: Task, text: str) -> str:
    return quote(text, f"output `text` of task {task.id}")


def _data(content: Any) -> str:
    words = json.dumps(content, ensure_ascii=False)
    return quote(words if len(words) <= MAX_JSON_LENGTH else words[:MAX_JSON_LENGTH] + " …")


def _created_files(task: Task) -> str:
    return join_list([describe_file(artifact) for artifact in task.artifacts])


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    return ", ".join(words[:MAX_LISTED]) + more


def _records(task: Task, port: str) -> list[Mapping[str, Any]]:
    data = task.data(port)
    return [record for record in data if isinstance(record, dict)] if isinstance(data, list) else []


def _subject(task: Task, default: str) -> str:
    return inline(task.given[0]) if len(task.given) == 1 else default


def _of(task: Task) -> str:
    return f" of {inline(task.given[0])}" if len(task.given) == 1 else ""


def _in(task: Task) -> str:
    return f" in {inline(task.given[0])}" if len(task.given) == 1 else ""


_DESCRIPTIONS: Mapping[str, Callable[[Task], str]] = {
    "image-to-text": _describe_ocr,
    "automatic-speech-recognition": _describe_transcript,
    "text-classification": _describe_classes,
    "zero-shot-classification": _describe_classes,
    "image-classification": _describe_classes,
    "zero-shot-image-classification": _describe_classes,
    "audio-classification": _describe_classes,
    "zero-shot-audio-classification": _describe_classes,
    "video-classification": _describe_classes,
    "token-classification": _describe_entities,
    "question-answering": _describe_answer,
    "table-question-answering": _describe_answer,
    "visual-question-answering": _describe_answer,
    "document-question-answering": _describe_answer,
    "object-detection": _describe_objects,
    "zero-shot-object-detection": _describe_objects,
    "keypoint-detection": _describe_objects,
    "summarization": _describe_summary,
    "translation": _describe_translation,
    "text-generation": _describe_text,
    "text2text-generation": _describe_text,
    "conversational": _describe_text,
    "text-to-speech": _describe_speech,
    "text-to-audio": _describe_new("The sound"),
    "audio-to-audio": _describe_recording,
    "image-to-image": _describe_new("The new picture"),
    "image-super-resolution": _describe_new("The larger picture"),
    "inpainting": _describe_new("The new picture"),
    "text-to-image": _describe_new("The picture"),
    "text-to-video": _describe_new("The video"),
    "image-to-video": _describe_new("The video"),
    "depth-estimation": _describe_new("The depth"),
    "image-segmentation": _describe_segments,
    "image-conversion": _describe_new("The converted picture"),
    "audio-conversion": _describe_new("The converted recording"),
    "text-statistics": _describe_statistics("The text"),
    "page-count": _describe_statistics("The document"),
    "calculation": _describe_calculation,
}
