"""Tasks as a model means them, made valid one by one."""

from collections.abc import Collection, Mapping, Sequence

from services.planner.llm.reading import RawTask
from services.planner.llm.wire import Fault
from services.planner.plan import HARD_LIMIT, Catalogue, Task, Value


class Drafting:
    """A plan that grows by what a model writes; whatever it lets out is valid, final and numbered after `prior`.

    The model may refer to a prior task by its id, unless it gave that id to a task of its own or the task is in
    `failed` (or builds on one that is).
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
        raise NotImplementedError

    @property
    def complaints(self) -> list[Fault]:
        """What could not be mended so far, in the order it was written."""
        raise NotImplementedError

    @property
    def tasks(self) -> list[Task]:
        """Everything let out so far, without what stood before."""
        raise NotImplementedError

    def add(self, raw: RawTask) -> list[Task]:
        """The tasks that can be let out now: this one, those it became, and those that waited for it."""
        raise NotImplementedError

    def close(self, *, cut: bool = False) -> list[Task]:
        """What can be let out of the tasks that still wait; of a text that was cut, none: the rest may be coming."""
        raise NotImplementedError
