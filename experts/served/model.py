"""One model of a server for one task, as a RemoteHandler."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from experts.endpoints.data_policy import check_data_policy
from experts.endpoints.endpoint_health import EndpointHealth
from experts.endpoints.http_errors import PaymentRequired
from experts.endpoints.retry import RetryPolicy
from experts.host.handler import Call, Inputs, Outputs, Parameters, RemoteHandler, UnavailableReason
from experts.served.backend import REPLY_ERRORS, Backend, ServedCall, invalid_reply
from experts.served.config import Model, Server
from services.common.errors import ServiceError, Unavailable

POLICY_REMEDY = "if its server is part of the deployment, set location: internal in the file of EXPERT_SERVED"
PAYMENT_RETRY_SECONDS = 900.0


class ServedModel(RemoteHandler):
    """Called on the event loop, within the concurrency limit of its server."""

    def __init__(self, server: Server, model: Model, task: str, backend: Backend, health: EndpointHealth) -> None:
        self._server, self._model, self._task = server, model, task
        self._backend, self._health = backend, health
        self._retry = RetryPolicy()

    @property
    def unavailable_reason(self) -> UnavailableReason | None:
        return self._health.unavailable_reason

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ServedCall:
        """Checks that the call may be sent, and prepares it; a server that was unavailable is tried again."""
        self._check()
        return self._backend.prepare(self._model, self._task, inputs, parameters)

    async def infer(self, item: ServedCall, _call: Call) -> ServedCall:
        self._check()
        try:
            answer = await self._retry.run(lambda: self._backend.infer(item))
        except PaymentRequired as error:
            self._health.mark_unavailable(error.message, error.remedy, seconds=PAYMENT_RETRY_SECONDS)
            raise
        except Unavailable as error:
            self._health.mark_unavailable(error.message, error.remedy)
            raise
        self._health.mark_available()
        return replace(item, answer=answer)

    def finish(self, raw: ServedCall) -> Outputs:
        try:
            return self._backend.finish(raw)
        except REPLY_ERRORS as error:
            raise invalid_reply(self._model.name, self._server.name) from error

    def _check(self) -> None:
        if self._server.location == "external":
            check_data_policy(self._model.name, POLICY_REMEDY)
        if self._health.is_suspended:
            self._health.check()


def update_health(
    healths: Mapping[str, EndpointHealth], names: Iterable[str], errors: Mapping[str, ServiceError]
) -> None:
    """Updates the health of a server's models after a check."""
    for name in names:
        if healths[name].is_suspended:
            continue  # it requires payment, which readiness does not show
        if error := errors.get(name):
            healths[name].mark_unavailable(error.message, error.remedy)
        else:
            healths[name].mark_available()
