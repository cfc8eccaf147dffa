"""Builds plans: numbers tasks, binds their arguments, links them, and merges equal ones.

Rules and the learned graph both build with a `PlanBuilder`: rules add one step after the other, the learned graph adds
nodes, whose links are given. The builder adds intermediate tasks and splits tasks over several files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.planner.embedded import quoted_languages
from services.planner.embedded.clauses import Clause
from services.planner.embedded.intents import EDITING, intent, task_of
from services.planner.embedded.media import Media
from services.planner.embedded.note_texts import cut, failing, lost, unoffered, unpaired, which_language
from services.planner.embedded.parameters import parameters
from services.planner.embedded.patterns import Lexicon
from services.planner.embedded.ports import Ports
from services.planner.embedded.resources import Resource
from services.planner.embedded.steps import Node, Step
from services.planner.embedded.streams import Flow, MissingInput, Stream, Unplannable, answers, findings, modifies
from services.planner.embedded.target_languages import target_languages
from services.planner.embedded.texts import Texts
from services.planner.embedded.wording import Wording
from services.planner.plan import SPLIT_LIMIT, Argument, Many, Note, Reference, Task, Text
from services.planner.task_spec import Catalogue, Modality, Spec, failing_experts

BRIDGES = {
    Modality.IMAGE: "image-to-text",
    Modality.AUDIO: "automatic-speech-recognition",
    Modality.VIDEO: "video-to-text",
}
"""Tasks that turn other modalities into text."""

MASKS = "image-segmentation"
"""The task that makes a mask if none was sent."""

CHANGES = frozenset((EDITING, "image-to-image"))
"""Intents that change a picture; the words decide whether a further change applies to the changed picture."""

LONGEST_SOURCE = 300
"""Most characters of a task's source."""


class PlanBuilder:
    """Builds the plan of one request; tasks that were added are never changed."""

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
        self._lexicon = lexicon
        self._resources = resources
        self._wording = wording
        self._flow = Flow()
        self.media = Media(resources, wording.mentions, lexicon, self._flow)
        self.texts = Texts(self.media, self._flow, wording, lexicon, self._bridge)
        self._ports = Ports(standard, self.media, self.texts, lexicon, self._flow)
        self._ids: dict[object, int] = {}
        self._made: dict[str, list[Stream]] = {}
        """Outputs of the nodes, by intent."""
        self.tasks: list[Task] = []
        self.intents: dict[int, str] = {}
        """Intents of the tasks of nodes, by task id."""
        self.notes: list[Note] = []
        self.asks_back = False
        """Whether a part of the request needs an input that was not sent."""

    def empty(self) -> "PlanBuilder":
        """Returns a builder for the same request, without tasks."""
        return PlanBuilder(
            self._catalogue, self._standard, self._lexicon, resources=self._resources, wording=self._wording
        )

    def spec(self, name: str) -> Spec:
        """A kind of task that is offered, else as the standard has it."""
        return self._catalogue.get(name) or self._standard[name]

    def offers(self, spec: Spec) -> bool:
        """Whether an expert offers this kind of task now."""
        return spec.name in self._catalogue

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Adds the nodes of a graph, producers first; a note replaces a node whose producer has no outputs."""
        for node in nodes:
            self._made[node.intent] = self._add_node(node)

    def _add_node(self, node: Node) -> list[Stream]:
        missing = [name for name in node.producers if not self._made[name]]
        if missing:
            self.notes.append(lost(node.clause, missing[0]))
            return []
        fed = tuple(stream for name in node.producers for stream in self._made[name])
        before, made = len(self.tasks), list[Stream]()
        for step in node.steps:
            words_decide = bool(made) and node.intent in CHANGES
            made += self.add(replace(step, fed=None if words_decide else fed))
        usual = {task_of(node.intent), task_of(node.intent, picture=True)}
        for task in self.tasks[before:]:
            if task.task in usual or intent(task.task) == node.intent:
                self.intents[task.id] = node.intent
        return made

    def add(self, step: Step) -> list[Stream]:
        """Adds a step and the tasks that it needs, or a note on what is missing; returns the outputs of the step."""
        try:
            if not self.offers(step.spec):
                raise Unplannable(self._unoffered(step.spec.name, step.clause))  # noqa: TRY301  # as when a port is missing
            return self._add(step)
        except Unplannable as error:
            if error.note:
                self.notes.append(error.note)
                self.asks_back |= isinstance(error, MissingInput)
                self._lose(step)
            return []

    def _add(self, step: Step) -> list[Stream]:
        filled = self._ports.fill(step)
        for port in step.spec.inputs:
            if port.name == "mask":
                filled[port.name] = self._mask(step.clause)
        variants = self._variants(step)
        filled = {name: _with_languages(step, stream) for name, stream in filled.items()}
        if self._refers_to_its_result(step.spec, filled, variants):
            return self._flow.made_by(step.spec.name)
        return self._place(step, filled, variants)

    def _lose(self, step: Step) -> None:
        """Marks the outputs of a step as missing, so that steps that depend on it are noted, too."""
        for port in step.spec.outputs:
            stream = self._output(step, port.name, port.modality, {})
            self._flow.add(stream.gone(step.clause.words))

    # ------------------------------------------------------------ intermediate tasks

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
        """The parameters of each task that the step becomes: one for every requested language."""
        found = parameters(step.spec, step.clause.masked)
        if step.labels and step.spec.takes("candidate_labels"):
            found["candidate_labels"] = list(step.labels)
        if step.spec.takes("target_language") and not quoted_languages.targets(step.clause):
            return [found | {"target_language": target} for target in self._targets(step.clause, found)] or [found]
        return [found]

    def _targets(self, clause: Clause, found: Mapping[str, Any]) -> list[str]:
        """The languages to translate into: those of the clause, else of the request."""
        targets = target_languages(self._wording.masked, clause.start, clause.end)
        return [target for target in targets if target != found.get("source_language")]

    def _refers_to_its_result(
        self, spec: Spec, filled: Mapping[str, Stream], variants: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Whether the words mean the result of an equal step, as "the summary" does, or order the same again.

        Only of texts and recordings: a picture may be changed twice.
        """
        if not modifies(spec) or {port.modality for port in spec.inputs} not in ({Modality.TEXT}, {Modality.AUDIO}):
            return False
        known = [json.loads(task.parameters_json or "{}") for task in self.tasks if task.task == spec.name]
        made_by_itself = all(stream.producer == spec.name for stream in filled.values())
        return made_by_itself and all(variant in known for variant in variants)

    # ------------------------------------------------------------ tasks

    def _place(self, step: Step, filled: Mapping[str, Stream], variants: Sequence[dict[str, Any]]) -> list[Stream]:
        """Adds a task for every value and variant unless an equal one exists; returns their outputs."""
        for stream in filled.values():
            self._flow.add(replace(stream, named_languages=()))
        many = {port.name for port in step.spec.inputs if port.many}
        placed: dict[int, str] = {}
        for index in range(self._copies(step, [stream for name, stream in filled.items() if name not in many])):
            given = {name: _given(stream, index, many=name in many) for name, stream in filled.items()}
            for variant in variants:
                values = _copy_parameters(step.spec, filled, index, variant)
                placed[self._task(step, given, values)] = values.get("target_language", "")
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
    """Returns quoted texts with the languages named next to them.

    Raises:
        Unplannable: it is unclear which language belongs to which text.
    """
    quoted = tuple(Text(payload.text) for payload in step.clause.payloads)
    if stream.spoken or stream.arguments != quoted:
        return stream
    if step.spec.takes("target_language"):
        return replace(stream, named_languages=tuple(quoted_languages.targets(step.clause) or ()))
    if not step.spec.takes("language"):
        return stream
    named = quoted_languages.spoken(step.clause)
    if named is None:
        raise Unplannable(which_language(step.clause))
    return replace(stream, named_languages=tuple(named))


def _copy_parameters(
    spec: Spec, filled: Mapping[str, Stream], index: int, variant: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of a copy of a task, with the language of its input or of its output."""
    for stream in filled.values():
        if stream.named_languages:
            name = "target_language" if spec.takes("target_language") else "language"
            return {**variant, name: stream.named_languages[index]}
    languages = [stream.languages for stream in filled.values() if stream.languages]
    if not languages or not spec.takes("language"):
        return dict(variant)
    return {"language": languages[0][index if len(languages[0]) > 1 else 0], **variant}
