"""One model of a server for one task, as the host serves it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from experts.endpoints.data_policy import check_may_leave
from experts.endpoints.endpoint_health import Standing
from experts.endpoints.http_errors import PaidOut
from experts.endpoints.retry import Patience
from experts.host.handler import Call, Inputs, Outputs, Parameters, Trouble
from experts.served.backend import NONSENSE, Asked, Backend, broken
from experts.served.config import Model, Server
from services.common.errors import ServiceError, Unavailable

STAYS = "if its server belongs to the house, say reach: internal in the file of EXPERT_SERVED"
PAID_OUT_SECONDS = 900.0


class ServedModel:
    """Asked on the loop, as many at a time as its server is to have."""

    def __init__(self, server: Server, model: Model, task: str, backend: Backend, standing: Standing) -> None:
        self._server, self._model, self._task = server, model, task
        self._backend, self._standing = backend, standing
        self._patience = Patience()

    @property
    def trouble(self) -> Trouble | None:
        return self._standing.trouble

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Asked:
        """Refuses what must not be sent; a server that was away is asked anyway: it may be back."""
        self._check()
        return self._backend.prepare(self._model, self._task, inputs, parameters)

    def cost(self, _item: Asked) -> float:
        return 1.0

    async def ask(self, item: Asked, _call: Call) -> Asked:
        self._check()
        try:
            answer = await self._patience.asking(lambda: self._backend.ask(item))
        except PaidOut as error:
            self._standing.failed(error.message, error.remedy, seconds=PAID_OUT_SECONDS)
            raise
        except Unavailable as error:
            self._standing.failed(error.message, error.remedy)
            raise
        self._standing.mended()
        return replace(item, answer=answer)

    def finish(self, raw: Asked) -> Outputs:
        try:
            return self._backend.finish(raw)
        except NONSENSE as error:
            raise broken(self._model.name, self._server.name) from error

    def _check(self) -> None:
        if self._server.reach == "external":
            check_may_leave(self._model.name, STAYS)
        if self._standing.serves_time:
            self._standing.check()


def judge(standings: Mapping[str, Standing], names: Iterable[str], problems: Mapping[str, ServiceError]) -> None:
    """Takes note of what a server said of its models."""
    for name in names:
        if standings[name].serves_time:
            continue  # it wants to be paid, which being ready says nothing about
        if problem := problems.get(name):
            standings[name].failed(problem.message, problem.remedy)
        else:
            standings[name].mended()
