"""Builds tasks from steps: adds intermediate tasks, splits tasks over several files, merges equal tasks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.planner.embedded import quoted_languages
from services.planner.embedded.clauses import Clause
from services.planner.embedded.directions import into
from services.planner.embedded.media import Media
from services.planner.embedded.note_texts import cut, failing, unoffered, unpaired, which_language
from services.planner.embedded.parameters import parameters
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.ports import Ports
from services.planner.embedded.resources import Resource
from services.planner.embedded.steps import Step
from services.planner.embedded.streams import Flow, MissingInput, Stream, Unplannable, answers, findings, modifies
from services.planner.embedded.texts import Texts
from services.planner.embedded.wording import Wording
from services.planner.plan import SPLIT_LIMIT, Argument, Many, Note, Reference, Task, Text
from services.planner.task_spec import Catalogue, Modality, Spec, failing_experts

BRIDGES = {
    Modality.IMAGE: "image-to-text",
    Modality.AUDIO: "automatic-speech-recognition",
    Modality.VIDEO: "video-to-text",
}
"""What puts other things into words."""

MASKS = "image-segmentation"
"""What makes a mask where none was sent."""

LONGEST_SOURCE = 300
"""Characters of a task's source words that are kept."""


class PlanBuilder:
    """Builds a plan step by step; tasks that were added are never changed."""

    def __init__(
        self,
        catalogue: Catalogue,
        standard: Catalogue,
        lexicon: Lexicon,
        *,
        resources: Sequence[Resource],
        wording: Wording,
    ) -> None:
        self._catalogue = catalogue
        self._standard = standard
        self._wording = wording
        self._flow = Flow()
        self.media = Media(resources, wording.mentions, lexicon, self._flow)
        self.texts = Texts(self.media, self._flow, wording, lexicon, self._bridge)
        self._ports = Ports(standard, self.media, self.texts, lexicon, self._flow)
        self._ids: dict[object, int] = {}
        self.tasks: list[Task] = []
        self.notes: list[Note] = []
        self.asks_back = False
        """Whether a part of the request needs an input that was not sent."""

    def spec(self, name: str) -> Spec:
        """A kind of task that is offered, else as the standard has it."""
        return self._catalogue.get(name) or self._standard[name]

    def offers(self, spec: Spec) -> bool:
        """Whether an expert offers this kind of task now."""
        return spec.name in self._catalogue

    def add(self, step: Step) -> list[Stream]:
        """Adds what a step needs, and the step; or a note on what is missing. Gives what the step makes."""
        try:
            if not self.offers(step.spec):
                raise Unplannable(self._unoffered(step.spec.name, step.clause))  # noqa: TRY301  # as when a port is missing
            return self._add(step)
        except Unplannable as wanting:
            if wanting.note:
                self.notes.append(wanting.note)
                self.asks_back |= isinstance(wanting, MissingInput)
                self._lose(step)
            return []

    def _add(self, step: Step) -> list[Stream]:
        filled = self._ports.fill(step)
        for port in step.spec.inputs:
            if port.name == "mask":
                filled[port.name] = self._mask(step.clause)
        variants = self._variants(step)
        filled = {name: _with_languages(step, stream) for name, stream in filled.items()}
        if self._speaks_of_itself(step.spec, filled, variants):
            return self._flow.made_by(step.spec.name)
        return self._place(step, filled, variants)

    def _lose(self, step: Step) -> None:
        """Notes that nothing comes of a step, so that what depends on it says so, too."""
        for port in step.spec.outputs:
            stream = self._output(step, port.name, port.modality, {})
            self._flow.add(stream.gone(step.clause.words))

    # ------------------------------------------------------------ what lies between

    def _bridge(self, stream: Stream, clause: Clause) -> Stream:
        """The text of pictures, recordings or videos."""
        spec = self._offered(BRIDGES[stream.modality], clause)
        port = next(port for port in spec.inputs if port.modality is stream.modality)
        made = self._place(Step(spec, clause), {port.name: stream}, [{}])
        return next(output for output in made if output.modality is Modality.TEXT)

    def _mask(self, clause: Clause) -> Stream:
        """A mask that was sent, or that of the picture's foreground."""
        for mention in clause.masks:
            if mention.resource:
                return Stream(Modality.IMAGE, (mention.resource.argument,))
        spec = self._offered(MASKS, clause)
        picture = self.media.find(clause, Modality.IMAGE)
        made = self._place(Step(spec, clause), {spec.inputs[0].name: picture}, [{}])
        return next(output for output in made if output.port == "mask")

    def _offered(self, name: str, clause: Clause) -> Spec:
        if name not in self._catalogue:
            raise Unplannable(self._unoffered(name, clause))
        return self._catalogue[name]

    def _unoffered(self, name: str, clause: Clause) -> Note:
        """Why a kind of task cannot be planned: its experts are failing, or there are none."""
        experts = failing_experts(self._catalogue, name)
        return failing(name, experts, clause.words) if experts else unoffered(name, clause.words)

    # ------------------------------------------------------------ parameters

    def _variants(self, step: Step) -> list[dict[str, Any]]:
        """The parameters of each task the step becomes: one for every language that is asked for."""
        found = parameters(step.spec, step.clause.masked)
        if step.labels and step.spec.takes("candidate_labels"):
            found["candidate_labels"] = list(step.labels)
        if step.spec.takes("target_language") and not quoted_languages.targets(step.clause):
            return [found | {"target_language": target} for target in self._targets(step.clause, found)] or [found]
        return [found]

    def _targets(self, clause: Clause, found: Mapping[str, Any]) -> list[str]:
        """The languages to translate into: those of the clause, else of the request."""
        targets = into(self._wording.masked, clause.start, clause.end)
        return [target for target in targets if target != found.get("source_language")]

    def _speaks_of_itself(
        self, spec: Spec, filled: Mapping[str, Stream], variants: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Whether "the summary" is not another step but what a summary asked for before has given."""
        if not modifies(spec) or {port.modality for port in spec.inputs} != {Modality.TEXT}:
            return False
        known = [json.loads(task.parameters_json or "{}") for task in self.tasks if task.task == spec.name]
        made_by_itself = all(stream.producer == spec.name for stream in filled.values())
        return made_by_itself and all(variant in known for variant in variants)

    # ------------------------------------------------------------ tasks

    def _place(self, step: Step, filled: Mapping[str, Stream], variants: Sequence[dict[str, Any]]) -> list[Stream]:
        """Adds a task for every value and variant, or finds those that do the same already; gives their outputs."""
        for stream in filled.values():
            self._flow.add(replace(stream, wanted=()))
        many = {port.name for port in step.spec.inputs if port.many}
        placed: dict[int, str] = {}
        for index in range(self._copies(step, [stream for name, stream in filled.items() if name not in many])):
            given = {name: _given(stream, index, many=name in many) for name, stream in filled.items()}
            for variant in variants:
                spoken = _spoken(step.spec, filled, index, variant)
                placed[self._task(step, given, spoken)] = spoken.get("target_language", "")
        made = [self._output(step, port.name, port.modality, placed) for port in step.spec.outputs]
        for stream in reversed(made):  # the first output of a kind is the main one
            self._flow.add(stream)
        return made

    def _copies(self, step: Step, streams: Sequence[Stream]) -> int:
        counts = {len(stream.arguments) for stream in streams} - {1}
        if len(counts) > 1:
            raise Unplannable(unpaired(step.clause, sorted(counts)))
        copies = max(counts, default=1)
        if copies > SPLIT_LIMIT:
            self.notes.append(cut(step.clause, SPLIT_LIMIT, copies))
        return min(copies, SPLIT_LIMIT)

    def _task(self, step: Step, given: Mapping[str, Argument], variant: Mapping[str, Any]) -> int:
        parameters_json = (
            json.dumps(variant, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if variant else ""
        )
        same = step.spec.name, tuple(sorted(given.items(), key=str)), parameters_json, step.aspect
        if same not in self._ids:
            words = step.clause.words[:LONGEST_SOURCE]
            task = Task(len(self.tasks) + 1, step.spec.name, given, parameters_json, source=words)
            self.tasks.append(task)
            self._ids[same] = task.id
        return self._ids[same]

    def _output(self, step: Step, port: str, modality: Modality, placed: Mapping[int, str]) -> Stream:
        return Stream(
            modality,
            tuple(Reference(task_id, port) for task_id in placed),
            producer=step.spec.name,
            port=port,
            finding=findings(step.spec) or answers(step.spec),
            clause=step.clause.start,
            languages=tuple(placed.values()) if any(placed.values()) else (),
        )


def _given(stream: Stream, index: int, *, many: bool) -> Argument:
    if many:
        return Many(stream.arguments)
    return stream.arguments[index if len(stream.arguments) > 1 else 0]


def _with_languages(step: Step, stream: Stream) -> Stream:
    """Quoted texts with the languages named next to them.

    Raises:
        Unplannable: several are named, and which belongs to which text is unclear.
    """
    quoted = tuple(Text(payload.text) for payload in step.clause.payloads)
    if stream.spoken or stream.arguments != quoted:
        return stream
    if step.spec.takes("target_language"):
        return replace(stream, wanted=tuple(quoted_languages.targets(step.clause) or ()))
    if not step.spec.takes("language"):
        return stream
    named = quoted_languages.spoken(step.clause)
    if named is None:
        raise Unplannable(which_language(step.clause))
    return replace(stream, wanted=tuple(named))


def _spoken(spec: Spec, filled: Mapping[str, Stream], index: int, variant: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a copy of a task, with the language of what it is given or of what it is to give."""
    for stream in filled.values():
        if stream.wanted:
            knob = "target_language" if spec.takes("target_language") else "language"
            return {**variant, knob: stream.wanted[index]}
    languages = [stream.languages for stream in filled.values() if stream.languages]
    if not languages or not spec.takes("language"):
        return dict(variant)
    return {"language": languages[0][index if len(languages[0]) > 1 else 0], **variant}
