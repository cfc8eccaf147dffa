"""Repairs tasks written by an LLM incrementally, so that every emitted task is valid."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from services.planner.llm.json_stream import RawTask
from services.planner.llm.normalization import NormalizationContext, NormalizedTask, normalize_task, waits_for
from services.planner.llm.plan_format import ParsedTask, parse_task
from services.planner.llm.values import InputNames
from services.planner.plan import HARD_LIMIT, Task, Value
from services.planner.plan_assembler import PlanAssembler
from services.planner.plan_check import Fault, find_faults
from services.planner.task_spec import Catalogue


class _State(Enum):
    WAITING = auto()
    PLANNED = auto()
    INVALID = auto()


@dataclass(slots=True, eq=False)
class _PendingTask:
    """A parsed task and its state."""

    wire_id: int
    parsed: ParsedTask
    pending: set[int]
    """Ids of the tasks it waits for."""
    state: _State = _State.WAITING
    faults: list[Fault] = field(default_factory=list)


class PlanRepairer:
    """Builds a plan from task objects; emitted tasks are valid, final and numbered after existing ones.

    The LLM may refer to an existing task by its id, unless it used that id for its own task or the existing task failed
    or depends on one that did.

    Args:
        catalogue: available tasks.
        inputs: that tasks may use, by the names that the LLM uses.
        plan: receives the tasks.
        limit: maximum number of new tasks.
        resolved: replaces names in a task's arguments that are not names of the run.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        inputs: Mapping[str, Value],
        plan: PlanAssembler | None = None,
        limit: int = HARD_LIMIT,
        *,
        resolved: Callable[[Task], Task] = lambda task: task,
    ) -> None:
        self._plan = plan or PlanAssembler()
        self._context = NormalizationContext(catalogue, inputs, InputNames(inputs), self._plan)
        self._limit = limit
        self._resolved = resolved
        self._pending_by_id: dict[int, _PendingTask] = {}
        self._order: list[_PendingTask] = []
        self._closed = False
        self._limit_fault: Fault | None = None

    @property
    def faults(self) -> list[Fault]:
        """Faults that could not be repaired so far, in the order of the tasks."""
        faults = [fault for pending_task in self._order for fault in self._faults_of(pending_task)]
        return [*faults, self._limit_fault] if self._limit_fault else faults

    @property
    def tasks(self) -> list[Task]:
        """All tasks emitted so far."""
        return list(self._plan.tasks)

    @property
    def has_planned(self) -> bool:
        """Whether a task was valid, even if it exists already or was left out because it repeats a failure."""
        return any(pending_task.state is _State.PLANNED for pending_task in self._order)

    def add(self, raw: RawTask) -> list[Task]:
        """Adds a task object; returns the tasks that can be emitted now, including those that waited for it."""
        if len(self._order) >= HARD_LIMIT or len(self._plan.tasks) >= self._limit:
            message = f"the plan has more than {min(self._limit, HARD_LIMIT)} tasks"
            self._limit_fault = Fault(message, "leave out what is not asked for")
            return []
        parsed = parse_task(raw)
        wire_id = max(self._pending_by_id, default=-1) + 1 if parsed.wire_id is None else parsed.wire_id
        if not self._accepts(wire_id, parsed):
            return []
        pending_task = _PendingTask(wire_id, parsed, waits_for(parsed, self._context) - self._plan.groups.keys())
        self._pending_by_id[wire_id] = pending_task
        self._order.append(pending_task)
        return [] if pending_task.pending else self._emit_ready(pending_task)

    def close(self, *, cut: bool = False) -> list[Task]:
        """Returns the waiting tasks that can be emitted; none if the text was truncated, as the rest may be missing."""
        self._closed = True
        out: list[Task] = []
        while not cut and (pending_task := self._next_unresolved()):
            out += self._emit_ready(pending_task)
        return out

    # ------------------------------------------------------------ adding

    def _accepts(self, wire_id: int, parsed: ParsedTask) -> bool:
        """Whether a task is new or replaces an invalid one."""
        earlier = self._pending_by_id.get(wire_id)
        if earlier is None:
            self._plan.reserve(wire_id)
            return True
        if earlier.state is _State.INVALID or (earlier.state is _State.WAITING and self._closed):
            self._order.remove(earlier)
            return True
        if self._closed and earlier.parsed.task == parsed.task:
            return False  # an emitted task does not change
        return (earlier.parsed.task, earlier.parsed.given) != (parsed.task, parsed.given)

    # ------------------------------------------------------------ emitting

    def _emit_ready(self, pending_task: _PendingTask) -> list[Task]:
        out: list[Task] = []
        queue = deque([pending_task])
        while queue:
            pending_task = queue.popleft()
            before = len(self._plan.tasks)
            if self._try_emit(pending_task):
                out += self._plan.tasks[before:]
                queue += self._unblocked(pending_task.wire_id)
        return out

    def _unblocked(self, wire_id: int) -> list[_PendingTask]:
        waiting = [pending_task for pending_task in self._order if wire_id in pending_task.pending]
        for pending_task in waiting:
            pending_task.pending.discard(wire_id)
        return [pending_task for pending_task in waiting if not pending_task.pending]

    def _try_emit(self, pending_task: _PendingTask) -> bool:
        """Emits a task, or records its faults; returns whether it was emitted."""
        shape = normalize_task(pending_task.parsed, self._context)
        faults = shape if isinstance(shape, list) else self._add_to_plan(pending_task, shape)
        cycle = sorted(pending_task.pending & self._pending_by_id.keys())
        if faults and cycle:
            faults = [Fault(f"it waits for task {cycle[0]}, which waits for it in turn", "break the circle")]
        pending_task.faults = faults
        pending_task.state = _State.INVALID if faults else _State.PLANNED
        if not faults:
            pending_task.pending.clear()
        return not faults

    def _add_to_plan(self, pending_task: _PendingTask, shape: NormalizedTask) -> list[Fault]:
        """Adds the resulting tasks to the plan; returns faults if it cannot."""
        source = pending_task.parsed.source
        group = self._plan.number(
            [
                self._resolved(Task(0, shape.spec.name, arguments, shape.parameters_json, source=source))
                for arguments in shape.given
            ]
        )
        if len(self._plan.tasks) + len(group.new) > self._limit:
            return [Fault(f"the plan has more than {self._limit} tasks", "leave out what is not asked for")]
        if faults := [fault for task in group.new for fault in self._check(task)]:
            return faults
        self._plan.add(pending_task.wire_id, group)
        return []

    def _check(self, task: Task) -> list[Fault]:
        """Validates a task by the check that every plan must pass."""
        faults = find_faults([*self._plan.needed(task), task], self._context.catalogue, self._context.inputs)
        return [fault for fault in faults if fault.task_id == task.id]

    # ------------------------------------------------------------ end of the text

    def _next_unresolved(self) -> _PendingTask | None:
        held = [pending_task for pending_task in self._order if pending_task.state is _State.WAITING]
        lost = next(
            (pending_task for pending_task in held if not pending_task.pending & self._pending_by_id.keys()), None
        )
        return lost or self._next_in_cycle(held)

    def _next_in_cycle(self, held: Sequence[_PendingTask]) -> _PendingTask | None:
        """Returns the first waiting task of a dependency cycle."""
        seen: set[int] = set()
        for start in held:
            path: dict[int, _PendingTask] = {}
            pending_task: _PendingTask | None = start
            while pending_task and pending_task.wire_id not in path and pending_task.wire_id not in seen:
                path[pending_task.wire_id] = pending_task
                pending_task = self._pending_by_id.get(min(pending_task.pending, default=-1))
            if pending_task and pending_task.wire_id in path:
                cycle = set(list(path)[list(path).index(pending_task.wire_id) :])
                if untried := next((each for each in held if each.wire_id in cycle), None):
                    return untried
            seen |= path.keys()
        return None

    def _faults_of(self, pending_task: _PendingTask) -> list[Fault]:
        faults = pending_task.faults
        if pending_task.state is _State.WAITING and self._closed:
            needed = min(pending_task.pending)
            exists = needed in self._pending_by_id
            message = f"it waits for task {needed}, which {'could not be planned' if exists else 'is not there'}"
            faults = [Fault(message, f"correct task {needed}" if exists else "refer to one that is")]
        parsed = pending_task.parsed
        return [
            replace(fault, task_id=pending_task.wire_id, task=parsed.task, source=parsed.source) for fault in faults
        ]
