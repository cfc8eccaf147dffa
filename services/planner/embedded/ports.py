"""Binds the input ports of a step to streams."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from services.planner.embedded import arguments
from services.planner.embedded.clauses import LONGEST, Clause
from services.planner.embedded.endings import orders
from services.planner.embedded.media import Media
from services.planner.embedded.note_texts import two_needed
from services.planner.embedded.patterns import CERTAIN, Lexicon
from services.planner.embedded.port_assignment import compares, in_order, meant, taken
from services.planner.embedded.prompts import from_map, inserted, motion, plain
from services.planner.embedded.steps import Step
from services.planner.embedded.streams import Flow, MissingInput, Stream, Unplannable
from services.planner.embedded.texts import Texts
from services.planner.plan import Single, Text
from services.planner.task_spec import Catalogue, Modality, Port, Spec

LITERAL = frozenset(("translation", "text-to-speech"))
"""Standard tasks that take the words of the clause literally; so do all that are not standard."""

_REWRITING = "text2text-generation"
_TALKING = "conversational"
_CALCULATING = "calculation"
_EDGES = " ,;:"
_FEWEST_PROMPT_WORDS = 2
_FEWEST_COMPARED = 2
_POINTS = re.compile(
    r"\b(?:based on|from|using|with|of|for|illustrat\w+|visuali[sz]\w+|about)\s+(?:it|that|them|this)\b(?!\s+[a-z]{3,})"
    r"|\b(?:based on|from|using|with|of|for|to|illustrat\w+|visuali[sz]\w+)\s+(?:the|this|that|its|my)\s+(?:[\w-]+\s+)?"
    r"(?:summary|translation|description|caption|text|result|answer|story|poem|transcript\w*|output|response|label"
    r"|sentence|paragraph|article|conversation|entities|classification|question)\b"
)
"""Words by which a clause says that what is to be made follows from something else."""


class Ports:
    """Finds what flows into a step."""

    def __init__(self, standard: Catalogue, media: Media, texts: Texts, lexicon: Lexicon, flow: Flow) -> None:
        self._standard = standard
        self._media = media
        self._texts = texts
        self._lexicon = lexicon
        self._flow = flow

    def fill(self, step: Step) -> dict[str, Stream]:
        """The stream for every port the step uses, but for masks.

        Raises:
            Unplannable: something is missing.
        """
        fed = taken(step.spec, (meant(stream, step.clause.masked) for stream in step.fed or ()))
        if step.clause.asks or self._texts.asks(step.clause, step.spec):
            fed.pop("question", None)
        filled = {
            port.name: fed.get(port.name) or self._found(step, port)
            for port in step.spec.inputs
            if (port.required or port.modality is Modality.TEXT) and port.name != "mask"
        }
        filled = {name: stream for name, stream in filled.items() if stream.arguments != (Text(""),)}
        return in_order(step.spec, filled) if compares(step.spec) else filled

    def _found(self, step: Step, port: Port) -> Stream:
        """The stream that the words mean; if it is given what feeds the step, what was sent precedes what was made."""
        if step.fed is None:
            return self._meant(step, port)
        try:
            with self._flow.only_sent():
                return self._meant(step, port)
        except Unplannable:
            return self._meant(step, port)

    def _meant(self, step: Step, port: Port) -> Stream:
        return self._text(step, port) if port.modality is Modality.TEXT else self._other(step, port)

    def _other(self, step: Step, port: Port) -> Stream:
        found = self._media.find(step.clause, port.modality, step.spec)
        if not any(other.name == "mask" for other in step.spec.inputs):
            return found
        masks = [mention.resource.argument for mention in step.clause.masks if mention.resource]
        return replace(found, arguments=tuple(one for one in found.arguments if one not in masks) or found.arguments)

    def _text(self, step: Step, port: Port) -> Stream:
        name = step.spec.name
        if name == _CALCULATING:  # its parts belong together: "which is longer, and by how much?"
            return _words(step.clause.words) if port.name == "question" else self._texts_if_any(step)
        if port.name == "question":
            return _words(*self._questions(step))
        if not port.required:
            return _words(self._instruction(step))
        if compares(step.spec):
            return self._compared(step, port)
        if name in self._lexicon.prompted or name in self._lexicon.instructed:
            return self._described(step)
        literally = name in LITERAL or name not in self._standard
        return self._texts.find(step.clause, step.spec, labels=step.labels, literally=literally)

    def _questions(self, step: Step) -> list[str]:
        settled = step.fed is not None
        if questions := self._texts.questions(step.clause, step.spec, settled=settled):
            return questions
        if settled and not self._texts.answered:
            return [step.clause.words]
        raise Unplannable(None)  # it refers to the question of another clause

    def _instruction(self, step: Step) -> str:
        """What is to be done with a picture, or to happen in it; empty if it is only to move."""
        clause, wording = step.clause, self._texts.wording
        if any(port.modality is Modality.VIDEO for port in step.spec.outputs[:1]):
            stretch = slice(clause.start, clause.end)
            return motion(wording.text[stretch], wording.masked[stretch], self._lexicon)
        return arguments.instruction(self._narrowed(step))

    def _texts_if_any(self, step: Step) -> Stream:
        """All texts the step is about; an empty one if there are none, since its question may say everything."""
        try:
            return self._texts.find(step.clause, step.spec)
        except MissingInput:
            return _words("")

    def _described(self, step: Step) -> Stream:
        """What is to be made or written: as the clause says, or after something it points at."""
        clause = step.clause
        instructed = step.spec.name in self._lexicon.instructed
        named = None if clause.says(_POINTS) else self._media.named(clause, Modality.TEXT)
        if file := self._written(step) if instructed else named:
            return file
        found = [self._ordered(step)] if instructed else self._prompts(step)
        described = found or [arguments.prompt(clause)]
        too_short = not found and len(described[0].split()) < _FEWEST_PROMPT_WORDS
        if self._texts.within(clause) or (not clause.payloads and (clause.says(_POINTS) or too_short)):
            try:
                return self._texts.find(clause, step.spec)
            except Unplannable:
                if not described[0]:
                    raise
        return _words(*described)

    def _ordered(self, step: Step) -> str:
        """The words of an order; a message to talk about is the whole request if it asks for nothing else."""
        clause, wording = step.clause, self._texts.wording
        if step.spec.name != _TALKING:
            return self._narrowed(step).words
        found = self._lexicon.find(wording.masked, 0, LONGEST, self._media.sent_kinds())
        if any(match.weight >= CERTAIN and _TALKING not in match.tasks for match in found):
            return clause.payloads[-1].text if clause.payloads else clause.words
        return wording.text.strip()

    def _written(self, step: Step) -> Stream | None:
        """The text file that is to be rewritten or replied to, or that the clause names."""
        clause, sent = step.clause, self._media.sent(step.clause, Modality.TEXT)
        rewrites = step.spec.name in (_REWRITING, _TALKING)
        if clause.payloads or not sent or not (rewrites or self._media.named(clause, Modality.TEXT)):
            return None
        return self._texts.find(clause, step.spec)

    def _narrowed(self, step: Step) -> Clause:
        """The clause, but only the order in it that calls for the task: by preference one that calls for no other."""
        clause, wording = step.clause, self._texts.wording
        start = wording.text.find(clause.words, clause.start)
        if clause.payloads or start < 0:
            return clause

        def calls(span: tuple[int, int]) -> tuple[bool, bool]:
            within = [match for match in clause.matches if span[0] <= match.start < span[1]]
            return any(step.spec.name in match.tasks for match in within), not within

        found = orders(wording.masked, start, start + len(clause.words), self._lexicon)
        first, last = max(found, key=calls)
        return replace(clause, words=wording.text[first:last].strip(_EDGES)) if last > first else clause

    def _prompts(self, step: Step) -> list[str]:
        """What is to be made, one description for each copy: by the clause, else by the request; none if unsaid."""
        clause, wording = step.clause, self._texts.wording
        if clause.payloads:
            return [arguments.prompt(clause)]
        describe = _described_by(step.spec)
        for start, end in ((clause.start, clause.end), (0, LONGEST)):
            text, masked = wording.text[start:end], wording.masked[start:end]
            if found := describe(text, masked, self._lexicon):
                return found
        return []

    def _compared(self, step: Step, port: Port) -> Stream:
        """One text for the port that takes one, the others for the port that takes many."""
        clause = step.clause
        texts: list[Single] = [Text(payload.text) for payload in clause.payloads]
        named = self._media.named(clause, Modality.TEXT)
        texts += named.arguments if named else ()
        listed = len(texts)
        if len(texts) < _FEWEST_COMPARED:
            texts += [single for single in self._texts.all(clause) if single not in texts]
        if len(texts) < _FEWEST_COMPARED:
            raise Unplannable(two_needed(clause))
        if step.fed:
            given = {single for stream in step.fed for single in stream.arguments}
            others = [single for single in texts if single not in given]
            others = [single for single in others if single in texts[:listed]] or others[-1:]
            if not others:
                raise Unplannable(two_needed(clause))
            return Stream(Modality.TEXT, tuple(others))
        return Stream(Modality.TEXT, tuple(texts[1:] if port.many else texts[:1]))


def _words(*words: str) -> Stream:
    return Stream(Modality.TEXT, tuple(map(Text, words)), spoken=True)


def _described_by(spec: Spec) -> Callable[[str, str, Lexicon], list[str]]:
    """What finds the descriptions of what a task makes."""
    if any(port.name == "mask" for port in spec.inputs):
        return inserted
    if any(port.required and port.modality is Modality.IMAGE for port in spec.inputs):
        return from_map
    return partial(plain, kind=next((port.modality for port in spec.outputs), Modality.UNSPECIFIED))
