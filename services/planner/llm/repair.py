"""Tasks as a model means them, made valid one by one."""

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from services.planner.llm.json_stream import RawTask
from services.planner.llm.normalize import Shape, shaped, waits_for
from services.planner.llm.plan_format import Fault, Sketch, Wrong, sketch
from services.planner.llm.port_values import Scene
from services.planner.llm.values import Names
from services.planner.plan import HARD_LIMIT, Catalogue, Task, Value
from services.planner.plan_check import complaints, references


class _State(Enum):
    HELD = auto()
    OUT = auto()
    FAULTY = auto()


@dataclass(slots=True, eq=False)
class _Draft:
    """One task as written, and what became of it."""

    wire_id: int
    sketch: Sketch
    pending: set[int]
    """The ids it waits for."""
    state: _State = _State.HELD
    wrong: list[Wrong] = field(default_factory=list)


class Drafting:
    """A plan that grows by what a model writes; whatever it lets out is valid, final and numbered after `prior`.

    The model may refer to a prior task by its id, unless it gave that id to a task of its own or the task is in
    `failed` (or builds on one that is). A task that stands already is not let out again.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        inputs: Mapping[str, Value],
        prior: Sequence[Task] = (),
        limit: int = HARD_LIMIT,
        *,
        failed: Collection[int] = (),
    ) -> None:
        self._scene = Scene(catalogue, inputs, Names(inputs))
        self._limit = limit
        self._following = max((task.id for task in prior), default=0) + 1
        self._by_id = {task.id: task for task in prior}
        self._same = list(_usable(prior, failed))
        self._scene.groups.update({task.id: (task,) for task in self._same})
        self._scene.standing.extend((task,) for task in self._same)
        self._drafts: dict[int, _Draft] = {}
        self._order: list[_Draft] = []
        self._tasks: list[Task] = []
        self._closed = False
        self._beyond: Fault | None = None

    @property
    def complaints(self) -> list[Fault]:
        """What could not be mended so far, in the order it was written."""
        faults = [fault for draft in self._order for fault in self._faults(draft)]
        return [*faults, self._beyond] if self._beyond else faults

    @property
    def tasks(self) -> list[Task]:
        """Everything let out so far, without what stood before."""
        return list(self._tasks)

    def add(self, raw: RawTask) -> list[Task]:
        """The tasks that can be let out now: this one, those it became, and those that waited for it."""
        if len(self._order) >= HARD_LIMIT or len(self._tasks) >= self._limit:
            message = f"the plan has more than {min(self._limit, HARD_LIMIT)} tasks"
            self._beyond = Fault(None, "", message, "leave out what is not asked for")
            return []
        said = sketch(raw)
        wire_id = max(self._drafts, default=-1) + 1 if said.wire_id is None else said.wire_id
        if not self._welcome(wire_id, said):
            return []
        draft = _Draft(wire_id, said, waits_for(said, self._scene) - self._scene.groups.keys())
        self._drafts[wire_id] = draft
        self._order.append(draft)
        return [] if draft.pending else self._let_out(draft)

    def close(self, *, cut: bool = False) -> list[Task]:
        """What can be let out of the tasks that still wait; of a text that was cut, none: the rest may be coming."""
        self._closed = True
        out: list[Task] = []
        while not cut and (draft := self._next_to_mend()):
            out += self._let_out(draft)
        return out

    # ------------------------------------------------------------ arrivals

    def _welcome(self, wire_id: int, said: Sketch) -> bool:
        """Whether a task is new, or takes the place of one that could not be let out."""
        earlier = self._drafts.get(wire_id)
        if earlier is None:
            self._forget_prior(wire_id)
            return True
        if earlier.state is _State.FAULTY or (earlier.state is _State.HELD and self._closed):
            self._order.remove(earlier)
            return True
        if self._closed and earlier.sketch.task == said.task:
            return False  # it was let out, and stays as it is
        return (earlier.sketch.task, earlier.sketch.given) != (said.task, said.given)

    def _forget_prior(self, wire_id: int) -> None:
        if wire_id not in {draft.wire_id for draft in self._order}:
            self._scene.groups.pop(wire_id, None)

    # ------------------------------------------------------------ departures

    def _let_out(self, draft: _Draft) -> list[Task]:
        out: list[Task] = []
        queue = deque([draft])
        while queue:
            draft = queue.popleft()
            before = len(self._tasks)
            if self._place(draft):
                out += self._tasks[before:]
                queue += self._released(draft.wire_id)
        return out

    def _released(self, wire_id: int) -> list[_Draft]:
        waiting = [draft for draft in self._order if wire_id in draft.pending]
        for draft in waiting:
            draft.pending.discard(wire_id)
        return [draft for draft in waiting if not draft.pending]

    def _place(self, draft: _Draft) -> bool:
        """Whether a task could be let out; if not, it is known why."""
        shape = shaped(draft.sketch, self._scene)
        wrong = shape if isinstance(shape, list) else self._numbered(draft, shape)
        circle = sorted(draft.pending & self._drafts.keys())
        if wrong and circle:
            wrong = [Wrong(f"it waits for task {circle[0]}, which waits for it in turn", "break the circle")]
        draft.wrong = wrong
        draft.state = _State.FAULTY if wrong else _State.OUT
        if not wrong:
            draft.pending.clear()
        return not wrong

    def _numbered(self, draft: _Draft, shape: Shape) -> list[Wrong]:
        """Adds the tasks of a shape to the plan, those that stand already apart; or says why it does not."""
        group: list[Task] = []
        new: list[Task] = []
        standing = list(self._same)
        for arguments in shape.given:
            task = Task(0, shape.spec.name, arguments, shape.parameters_json, source=draft.sketch.source)
            same = next((other for other in standing if _alike(other, task)), None)
            if same:
                standing.remove(same)
            else:
                new.append(replace(task, id=self._following + len(new)))
            group.append(same or new[-1])
        if len(self._tasks) + len(new) > self._limit:
            return [Wrong(f"the plan has more than {self._limit} tasks", "leave out what is not asked for")]
        if wrong := [fault for task in new for fault in self._gate(task)]:
            return wrong
        self._enter(draft.wire_id, group, new)
        self._same = standing
        return []

    def _gate(self, task: Task) -> list[Wrong]:
        """The last word on a task, that of the check every plan must pass."""
        needed = sorted({reference.task_id for reference in references(task)})
        context = [self._by_id[task_id] for task_id in needed]
        faults = complaints([*context, task], self._scene.catalogue, self._scene.inputs)
        return [Wrong(fault.message, fault.remedy) for fault in faults if fault.task_id == task.id]

    def _enter(self, wire_id: int, group: Sequence[Task], new: Sequence[Task]) -> None:
        self._tasks += new
        self._following += len(new)
        self._by_id.update({task.id: task for task in new})
        self._scene.groups[wire_id] = group
        if new:
            self._scene.standing.append(group)

    # ------------------------------------------------------------ what is left at the end

    def _next_to_mend(self) -> _Draft | None:
        held = [draft for draft in self._order if draft.state is _State.HELD]
        lost = next((draft for draft in held if not draft.pending & self._drafts.keys()), None)
        return lost or self._on_a_circle(held)

    def _on_a_circle(self, held: Sequence[_Draft]) -> _Draft | None:
        """The first of those that wait for each other and have not been tried."""
        seen: set[int] = set()
        for start in held:
            path: dict[int, _Draft] = {}
            draft: _Draft | None = start
            while draft and draft.wire_id not in path and draft.wire_id not in seen:
                path[draft.wire_id] = draft
                draft = self._drafts.get(min(draft.pending, default=-1))
            if draft and draft.wire_id in path:
                circle = set(list(path)[list(path).index(draft.wire_id) :])
                if untried := next((each for each in held if each.wire_id in circle), None):
                    return untried
            seen |= path.keys()
        return None

    def _faults(self, draft: _Draft) -> list[Fault]:
        wrong = draft.wrong
        if draft.state is _State.HELD and self._closed:
            needed = min(draft.pending)
            there = needed in self._drafts
            message = f"it waits for task {needed}, which {'could not be planned' if there else 'is not there'}"
            wrong = [Wrong(message, f"correct task {needed}" if there else "refer to one that is")]
        return [Fault(draft.wire_id, draft.sketch.task, *each, draft.sketch.source) for each in wrong]


def _usable(prior: Sequence[Task], failed: Collection[int]) -> Iterator[Task]:
    """The tasks that do not stand on one that failed."""
    lost = set(failed)
    for task in prior:
        if task.id in lost or any(reference.task_id in lost for reference in references(task)):
            lost.add(task.id)
        else:
            yield task


def _alike(standing: Task, task: Task) -> bool:
    same = (standing.task, standing.arguments) == (task.task, task.arguments)
    return same and json.loads(standing.parameters_json or "{}") == json.loads(task.parameters_json or "{}")
