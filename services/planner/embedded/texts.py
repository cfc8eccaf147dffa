"""Finds the text that a clause means: quoted, sent, made by an earlier step, or still to be read from a file."""

import re
from collections.abc import Callable, Sequence

from services.planner.embedded.arguments import contents, literal, question
from services.planner.embedded.clauses import LONGEST, Clause
from services.planner.embedded.media import EARLIER, ORIGINAL, PRONOUN, Media, flowing
from services.planner.embedded.note_texts import needed
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.questions import find_questions, part
from services.planner.embedded.resources import Resource
from services.planner.embedded.streams import Flow, MissingInput, Stream, findings, modifies
from services.planner.embedded.wording import Payload, Wording
from services.planner.plan import Single, Text
from services.planner.task_spec import Modality, Spec

Bridge = Callable[[Stream, Clause], Stream]
"""Turns a stream of pictures, recordings or videos into one of their text."""

_FOUND = re.compile(r"\b(?:them|these|those)\b|\bthe\s+(?:results?|findings|outcome)\b")
"""Words for what has just been found."""

_NO_QUESTION = re.compile(
    r"(?:according\s+to|based\s+on|going\s+by|judging|from|in|(?:give|tell|say|answer|read|put)\b.*\banswers?)\b",
    re.IGNORECASE,
)
"""How words begin that only say where the answer to a question lies, or what to do with it."""

_WRITING = re.compile(
    r"\bthe\s+(?:\w+\s+)?(?:letter|text\s+file|article|mail|e-?mail|story|report|recipe|minutes|review)\b"
)
"""Texts that people rather send as text than as a picture."""

_SHORTENING = "summarization"
_READ = re.compile(r"\bread\b")
"""An order for the text itself; a finding is spoken instead."""

BRIDGED = (Modality.IMAGE, Modality.AUDIO, Modality.VIDEO)
"""What can be read out of, the likeliest first."""


class Texts:
    """Finds the text for a port of a step."""

    def __init__(self, media: Media, flow: Flow, wording: Wording, lexicon: Lexicon, bridge: Bridge) -> None:
        self._media = media
        self._flow = flow
        self.wording = wording
        self._lexicon = lexicon
        self._bridge = bridge
        self._asked: set[str] = set()
        self._passed: set[Payload] = set()
        self.aside = ""
        """Plain statements of the request, which are what a question is about if nothing else is."""

    def pass_by(self, clause: Clause, clauses: Sequence[Clause]) -> None:
        """Adds the content before a clause that is outside of any other."""
        known = set(self._flow.of(Modality.TEXT))
        for payload in self.wording.payloads:
            if payload in self._passed or payload.start >= clause.start:
                continue
            self._passed.add(payload)
            inside = any(other.start <= payload.start < other.end for other in clauses)
            stream = _stream(payload.text)
            if not (inside or payload.asks or stream in known):
                self._flow.add(stream)
                known.add(stream)

    def carried(self, clause: Clause) -> bool:
        """Whether there is a text that a clause may be about."""
        flowed = any(not stream.finding for stream in self._flow.of(Modality.TEXT))
        quoted = any(not payload.asks for payload in self.wording.payloads)
        return (
            flowed
            or quoted
            or any(not (resource.age and resource.made) for resource in self._media.sent(clause, Modality.TEXT))
        )

    def all(self, clause: Clause) -> list[Single]:
        """Every text there is: what has flowed, what is quoted, what was sent."""
        flowed = [argument for stream in self._flow.of(Modality.TEXT) for argument in stream.arguments]
        quoted = [Text(payload.text) for payload in self.wording.payloads if not payload.asks]
        return list(dict.fromkeys([*flowed, *quoted, *_arguments(self._media.sent(clause, Modality.TEXT))]))

    def questions(self, clause: Clause, spec: Spec, *, settled: bool) -> list[str]:
        """The questions of a clause, else one of another clause; none if every question has a task already.

        Args:
            clause: the clause.
            spec: the task that is to answer.
            settled: whether the task is certain to need a question, even if the clause has none.
        """
        own = question(clause)
        if own and not any(payload.asks for payload in clause.payloads):
            found = self._in(clause.start, clause.end, spec)
            own_words = [] if found or not settled else self._in(0, LONGEST, spec)
            fresh = [words for words in own_words if words not in self._asked]
            if not (found or fresh) and self._asked and _NO_QUESTION.match(own):
                return []
            found = found or fresh or [part(own)]
        else:
            found = [own] if own else self._waiting()
        self._asked.update(found)
        return found

    def asks(self, clause: Clause, spec: Spec) -> bool:
        """Whether a clause contains a question for a task."""
        return bool(self._in(clause.start, clause.end, spec))

    @property
    def answered(self) -> bool:
        """Whether a task has a question."""
        return bool(self._asked)

    def _in(self, start: int, end: int, spec: Spec) -> list[str]:
        return find_questions(self.wording.text[start:end], self.wording.masked[start:end], self._lexicon, spec)

    def _waiting(self) -> list[str]:
        """The first quoted question that has not been processed."""
        quoted = [payload.text for payload in self.wording.payloads if payload.asks]
        return [words for words in quoted if words not in self._asked][:1]

    def within(self, clause: Clause) -> Stream | None:
        """The text that another step of the same clause makes."""
        return self._flow.latest(Modality.TEXT, lambda stream: stream.clause == clause.start)

    def find(self, clause: Clause, spec: Spec, *, labels: Sequence[str] = (), literally: bool = False) -> Stream:
        """The text a clause means.

        Args:
            clause: the clause.
            spec: the task it is for.
            labels: quoted names of classes, which are no content.
            literally: the plain words of the clause may be the text.

        Raises:
            Unplannable: there is none, or the file it names was not sent.
        """
        if within := self.within(clause):
            return flowing(within, clause)
        takes_question = any(port.name == "question" for port in spec.inputs)
        own = contents(clause, labels, asking=not takes_question)
        if self._flow.latest(Modality.TEXT, lambda stream: bool(stream.producer)) and clause.says(PRONOUN):
            own = [payload for payload in own if payload.quoted]  # what was pasted is no more what "it" means
        if own:
            return Stream(Modality.TEXT, tuple(Text(payload.text) for payload in own))
        words = self._literal(clause) if literally else ""
        stream = self._pointed_at(clause, spec) or (_stream(words) if words else self._left(clause))
        if stream is None:
            raise MissingInput(needed(clause, Modality.TEXT))
        return flowing(stream, clause)

    def _pointed_at(self, clause: Clause, spec: Spec) -> Stream | None:
        """What the clause names, what has flowed, or what was sent."""
        return (
            self._named(clause)
            or self._put_into_words(self._media.numbered(clause, Modality.TEXT), clause)
            or self._result(clause, spec)
            or self._every(clause)
            or self._of_media(clause)
            or self._writing(clause)
            or self._called(clause)
            or self._flowed(clause, spec)
            or self._sent(clause, old=False)
        )

    def _left(self, clause: Clause) -> Stream | None:
        """What remains when the clause points at nothing."""
        points_back = clause.says(PRONOUN) or clause.says(EARLIER) or clause.asks
        return self._elsewhere() or self._read_out(clause) or (self._sent(clause, old=True) if points_back else None)

    def _named(self, clause: Clause) -> Stream | None:
        named = [mention.resource for mention in clause.mentions if mention.resource]
        self._media.refuse_missing(clause)
        return self._put_into_words(named, clause)

    def _every(self, clause: Clause) -> Stream | None:
        """All that was sent and can be put into words, if the clause speaks of all and nothing has flowed from all."""
        covered = self._media.every(clause)
        flowed = self._flow.latest(Modality.TEXT) is not None and len(covered) > 1
        several_kinds = len({one.modalities[:1] for one in covered}) > 1
        return self._put_into_words(covered, clause) if flowed or several_kinds else None

    def _put_into_words(self, resources: Sequence[Resource], clause: Clause) -> Stream | None:
        """Their texts, read out where they are not texts themselves."""
        singles: list[Single] = []
        for resource in resources:
            if Modality.TEXT in resource.modalities:
                singles.append(resource.argument)
            elif kind := next((modality for modality in BRIDGED if modality in resource.modalities), None):
                singles += self._bridge(Stream(kind, (resource.argument,)), clause).arguments
        return Stream(Modality.TEXT, tuple(dict.fromkeys(singles))) if singles else None

    def _result(self, clause: Clause, spec: Spec) -> Stream | None:
        """The output of the task whose result the clause names."""
        if clause.says(ORIGINAL):
            return next((stream for stream in self._flow.of(Modality.TEXT) if not stream.finding), None)
        for noun, producers in self._lexicon.results:
            if clause.says(noun):
                others = frozenset(producers) - {spec.name}
                made = [stream for stream in self._flow.of(Modality.TEXT) if stream.producer in others]
                if made:
                    return made[-1]
        return None

    def _of_media(self, clause: Clause) -> Stream | None:
        for modality in BRIDGED:
            if modality in clause.named & self._media.sent_kinds():
                return self._bridge(self._media.find(clause, modality), clause)
        return None

    def _writing(self, clause: Clause) -> Stream | None:
        """The only text that was sent and is unused, if the clause speaks of a letter or the like."""
        unused = [one for one in self._media.unused() if one.modalities[:1] == (Modality.TEXT,)]
        return self._put_into_words(unused, clause) if len(unused) == 1 and clause.says(_WRITING) else None

    def _called(self, clause: Clause) -> Stream | None:
        if len(self._media.every(clause)) > 1:
            return None
        pages = self._media.called(clause, Modality.IMAGE) if clause.says(self._lexicon.page) else []
        return self._put_into_words(self._media.called(clause, Modality.TEXT) or pages, clause)

    def _flowed(self, clause: Clause, spec: Spec) -> Stream | None:
        """The text that flowed last: by preference what carries the content on, not what was found out about it."""
        texts = list(self._flow.of(Modality.TEXT))
        says_found = clause.says(_FOUND) or (clause.says(PRONOUN) and not clause.says(_READ))
        if texts and texts[-1].finding and says_found and not (findings(spec) or modifies(spec)):
            return texts[-1]
        carried = [stream for stream in texts if not stream.finding]
        if findings(spec) and not clause.sequel and not clause.says(PRONOUN):  # look into the whole, not its summary
            carried = [stream for stream in carried if stream.producer != _SHORTENING] or carried
        if spec.name == _SHORTENING:  # an answer is short already
            texts = [stream for stream in texts if not stream.producer.endswith("question-answering")]
        chosen = carried or ([] if findings(spec) else texts)
        return chosen[-1] if chosen else None

    def _sent(self, clause: Clause, *, old: bool) -> Stream | None:
        sent = [resource for resource in self._media.sent(clause, Modality.TEXT) if bool(resource.age) is old]
        return Stream(Modality.TEXT, _arguments(sent)) if sent else None

    def _literal(self, clause: Clause) -> str:
        points = clause.named or clause.says(PRONOUN) or clause.says(self._lexicon.page)
        return "" if points else literal(clause, self._lexicon, self.wording)

    def _elsewhere(self) -> Stream | None:
        payloads = self.wording.payloads
        rest = [payload.text for payload in payloads if not payload.asks] or [payload.text for payload in payloads]
        words = rest[-1] if rest else self.aside
        return _stream(words) if words else None

    def _read_out(self, clause: Clause) -> Stream | None:
        there = [modality for modality in BRIDGED if modality in self._media.kinds()]
        if not there:
            return None
        self._media.ambiguous = self._media.ambiguous or len(there) > 1
        return self._bridge(self._media.find(clause, there[0]), clause)


def _stream(words: str) -> Stream:
    return Stream(Modality.TEXT, (Text(words),))


def _arguments(resources: Sequence[Resource]) -> tuple[Single, ...]:
    return tuple(resource.argument for resource in resources)
