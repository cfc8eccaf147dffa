"""Finds the pictures, recordings, videos and tables that a clause means: named, sent, or made by an earlier step."""

import re
from collections.abc import Iterator, Sequence

from services.planner.embedded.clauses import Clause
from services.planner.embedded.note_texts import lost, needed, not_sent
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.resources import Resource
from services.planner.embedded.streams import Flow, MissingInput, Stream, Unplannable, findings, modifies
from services.planner.embedded.wording import Mention
from services.planner.task_spec import Modality, Spec

PRONOUN = re.compile(
    r"\b(?:it|its|them|they)\b"
    r"|\b(?:that|this|those|these)\b"
    r"(?=\s*(?:$|[.,?!]|(?:to|into|in|and|aloud|out|back|by|for|with|as|is|sounds?|up)\b))"
)
ORIGINAL = re.compile(r"\b(?:original|source|initial|unedited|unmodified)\b")

_RESULTING = re.compile(
    r"\b(?:edited|generated|resulting|new|blurred|annotated|processed|modified|enhanced|upscaled|transformed|output"
    r"|segmented|cleaned|denoised|synthesi[sz]ed|created|produced|final|marked|rotated|cropped|sharpened|improved"
    r"|changed|cut-?out|the (?:results?|outputs?|outcome))\b"
)
EARLIER = re.compile(
    r"\b(?:before|earlier|previous(?:ly)?|last time|already sent|sent you|just sent|from above"
    r"|(?:your|the|that|this) (?:last |previous )?(?:answer|reply|result|transcript|summary|translation|text)"
    r"|you (?:said|wrote|answered|read))\b"
)
_BY_USER = re.compile(r"\bi (?:have |just |had )?(?:sent|send|uploaded|gave|attached|shared)\b")
_ORDINALS = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1}
_THINGS = (
    r"(?:one|images?|pictures?|photos?|pics?|files?|recordings?|audios?|clips?|videos?|pages?|documents?|pdfs?|texts?)"
)
_WRITINGS = (
    r"(?:letter|mail|e-?mail|message|invoice|bill|receipt|offer|quote|review|article|report|recipe|note"
    r"|contract|caller)"
)
_ORDINAL = re.compile(
    rf"\b({'|'.join(_ORDINALS)})\s+(?:\w+\s+)?(?:{_THINGS}|{_WRITINGS})\b"
    rf"|\bthe\s+({'|'.join(_ORDINALS)})(?=\s*$|\s*[.,;!?]|\s+(?:and|then|by|to|in|into|as|aloud|out)\b)"
    rf"|\b{_THINGS}\s+(\d)\b"
)
_OTHER_VERSION = re.compile(r"\b(?:an?|another|one)\s+(?:[\w-]+\s+){0,2}(?:version|copy)\b")
_PLURAL = re.compile(r"\b(?:each|every|all|both|them|these|those|(?!this\b|does\b)\w{2,}[^s\W]s)\b")
EVERY = re.compile(
    r"\b(?:each|every|all|both|these|those|them|everything|which\s+one|(?:which|any|none|neither|either)\s+of)\b(?!\s+(?:about|the\s+same)\b)"
    r"(?:\s+(?:one|of|the|these|those|them|my|our|your|attached|enclosed|following|given|uploaded|sent|different|two|three|four|five"
    r"|\d+)\b)*(?:\s+(?!(?:aloud|out|say|mean|sound|mention|contain|please|pls|thanks|thx|briefly|together|separately|up|down)\b)"
    r"(?P<noun>[^\W\d_][\w-]*))?"
)
"""Words by which a clause covers all that was sent, and what they are called there."""

_FILES = re.compile(r"files?|attachments?|inputs?|uploads?|things?|ones")
_SINGULAR = re.compile(r"\b(?:it|its|this|that)\b")
_WORD = re.compile(r"[a-z]{3,}")
_CHOICE = re.compile(r"\bwhich\s+(?!of\b)[\w-]+")
"""What is to be chosen from: "which garage" may mean any of the files, whatever one of them is called."""

_IMPROVING = frozenset(("audio-to-audio", "image-to-image"))
"""Tasks whose result, rather than what was sent, is then converted; of a recording also what else is done with it."""

CONVERTING = frozenset(("image-conversion", "audio-conversion"))


class Media:
    """Finds the files a clause means among what there is."""

    def __init__(
        self, resources: Sequence[Resource], mentions: Sequence[Mention], lexicon: Lexicon, flow: Flow
    ) -> None:
        self._resources = resources
        self._mentions = mentions
        self._lexicon = lexicon
        self._flow = flow
        self.ambiguous = False
        """A choice had to be made that the words do not settle."""

    def kinds(self) -> set[Modality]:
        """What was sent now (else earlier), and what has been made."""
        return self.sent_kinds() | self._flow.kinds()

    def sent_kinds(self) -> set[Modality]:
        now = {modality for resource in self._resources if not resource.age for modality in resource.modalities}
        return now or {modality for resource in self._resources for modality in resource.modalities}

    def has_text(self) -> bool:
        """Whether a text or a document was sent or made, rather than only pictures or sound."""
        return Modality.TEXT in self.kinds() or any(resource.pdf for resource in self._resources)

    def uses(self, resource: Resource) -> bool:
        """Whether a task takes a resource."""
        return self._flow.carries(resource.argument)

    def unused(self) -> list[Resource]:
        """What was sent now and no task takes."""
        return [one for one in self._resources if not (one.age or self.uses(one))]

    def used_kinds(self) -> set[Modality]:
        """The kinds of what was sent now and has gone into a task."""
        unused = self.unused()
        return {kind for one in self._resources if one not in unused for kind in one.modalities[:1]}

    def find(self, clause: Clause, modality: Modality, spec: Spec | None = None) -> Stream:
        """The pictures (or recordings, …) a clause means, for a task if one is given.

        Raises:
            Unplannable: there are none, or the one it names was not sent.
        """
        if named := self.named(clause, modality):
            return named
        self.refuse_missing(clause)
        within = self._flow.latest(modality, lambda stream: stream.clause == clause.start)
        if earlier := within or self._earlier(clause, modality, spec):
            return flowing(earlier, clause)
        if sent := self.sent(clause, modality):
            return Stream(modality, tuple(resource.argument for resource in sent))
        if latest := self._flow.latest(modality):
            return flowing(latest, clause)
        raise MissingInput(needed(clause, modality))

    def _earlier(self, clause: Clause, modality: Modality, spec: Spec | None) -> Stream | None:
        """What an earlier step made, if the clause means that rather than what was sent."""
        if clause.says(ORIGINAL) or clause.says(_ORDINAL) or (clause.says(_OTHER_VERSION) and not clause.sequel):
            return None
        producers = {name for match in clause.results for name in match.tasks}
        if made := self._flow.latest(modality, lambda stream: stream.producer in producers):
            return made
        if clause.says(_RESULTING) and (latest := self._flow.latest(modality)):
            return latest
        made = self._flow.latest(modality, lambda stream: bool(stream.producer) and not stream.finding)
        looks_into = spec is not None and findings(spec)
        if made is None or (looks_into and modality is Modality.IMAGE and modality in self.sent_kinds()):
            return None  # what is found out is about the picture that was sent
        points = clause.says(PRONOUN) or spec is None or modifies(spec)
        if modality not in clause.named and points:
            return made
        improved = made.producer in _IMPROVING and (modality is Modality.AUDIO or (spec and spec.name in CONVERTING))
        return made if improved or (clause.sequel and not looks_into) else None

    def named(self, clause: Clause, modality: Modality) -> Stream | None:
        """The files the clause calls by name."""
        found = [
            mention.resource.argument
            for mention in clause.mentions
            if mention.resource and modality in mention.resource.modalities
        ]
        return Stream(modality, tuple(dict.fromkeys(found))) if found else None

    def refuse_missing(self, clause: Clause) -> None:
        """Raises Unplannable if the clause names a file that was not sent, and none that was."""
        if any(mention.resource for mention in clause.mentions):
            return
        for mention in clause.mentions:
            if not mention.target:
                raise MissingInput(not_sent(mention.name, self._resources))

    def called(self, clause: Clause, modality: Modality) -> list[Resource]:
        """The sent resources whose names share a word with the clause."""
        words = set(_WORD.findall(_CHOICE.sub("", clause.masked)))
        return [
            resource
            for resource in self._resources
            if resource.modalities[:1] == (modality,) and resource.stem_words & words
        ]

    def every(self, clause: Clause) -> list[Resource]:
        """The files sent now that a clause speaks of when it says that it means each or all of them."""
        bare = self._bare()
        return [
            resource
            for resource in self._resources
            if not resource.age
            and any(self._covers(found["noun"] or "", resource, bare=bare) for found in EVERY.finditer(clause.masked))
        ]

    def _bare(self) -> bool:
        """Whether "all" without a noun means files, rather than several texts that have been made of them."""
        made = self._flow.latest(Modality.TEXT, lambda stream: bool(stream.producer))
        return made is None or len(made.arguments) == 1

    def _covers(self, noun: str, resource: Resource, *, bare: bool) -> bool:
        if not noun or noun in self._lexicon.common:
            return bare
        if _FILES.fullmatch(noun):
            return True
        pages = (Modality.IMAGE, Modality.TEXT) if self._lexicon.page.fullmatch(noun) else ()
        return any(kind in (*pages, *self._lexicon.named(noun)) for kind in resource.modalities[:1])

    def sent(self, clause: Clause, modality: Modality) -> list[Resource]:
        """The sent resources of a modality that a clause may mean, narrowed by what it says of them."""
        fitting = [resource for resource in self._resources if modality in resource.modalities]
        proper = [resource for resource in fitting if resource.modalities[0] is modality] or fitting
        older = [resource for resource in proper if resource.age]
        candidates = [resource for resource in proper if not resource.age]
        if older and (not candidates or clause.says(EARLIER)):
            by_user = clause.says(ORIGINAL) or clause.says(_BY_USER) or (clause.asks and not clause.says(EARLIER))
            older = [resource for resource in older if not (by_user and resource.made)] or older
            newest = min(resource.age for resource in older)
            candidates = [resource for resource in older if resource.age == newest]
        for narrowed in self._narrowings(clause, modality, candidates):
            if narrowed:
                return narrowed
        return candidates

    def _mentioned_before(self, clause: Clause, sent: Sequence[Resource]) -> list[Resource]:
        """The file of those sent that the request named last."""
        before = [mention.resource for mention in self._mentions if mention.start < clause.start and mention.resource]
        return [resource for resource in before if resource in sent][-1:]

    def numbered(self, clause: Clause, modality: Modality) -> list[Resource]:
        """The one of several files sent now that a clause calls the first, the second and so on."""
        sent = [one for one in self._resources if modality in one.modalities[:1] and not one.age]
        return next(self._by_number(clause, sent), []) if len(sent) > 1 else []

    def _by_number(self, clause: Clause, sent: Sequence[Resource]) -> Iterator[list[Resource]]:
        if ordinal := _ORDINAL.search(clause.masked):
            word = ordinal[1] or ordinal[2]
            index = _ORDINALS[word] if word else int(ordinal[3]) - 1
            if -1 <= index < len(sent):
                yield [sent[index]]

    def _narrowings(self, clause: Clause, modality: Modality, sent: Sequence[Resource]) -> Iterator[list[Resource]]:
        if len(sent) <= 1:
            return
        yield from self._by_number(clause, sent)
        if len([one for one in self.every(clause) if one in sent]) == len(sent):
            yield list(sent)
        called = [resource for resource in self.called(clause, modality) if resource in sent]
        if len(called) < len(sent):
            yield called
        if clause.says(_SINGULAR) or not clause.says(_PLURAL):
            yield self._mentioned_before(clause, sent)
        if modality is Modality.IMAGE:
            is_page = clause.says(self._lexicon.page) and modality not in clause.named
            is_picture = modality in clause.named and not clause.says(self._lexicon.page)
            kind = [resource for resource in sent if (is_page and resource.pdf) or (is_picture and not resource.pdf)]
            if len(kind) < len(sent):
                yield kind
        self.ambiguous = self.ambiguous or not clause.says(_PLURAL)


def flowing(stream: Stream, clause: Clause) -> Stream:
    """The stream, if it has come about.

    Raises:
        Unplannable: the step that would have made it could not be planned.
    """
    if stream.lost:
        raise Unplannable(None if stream.clause == clause.start else lost(clause, stream.lost))
    return stream
