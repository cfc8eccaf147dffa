"""Routes of run records and verifications."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import Response

from gateway.core.runs import RunService
from gateway.http.run_routes import RunId, json_response
from gateway.json_encoder import encode
from gateway.openapi import examples, operations
from gateway.openapi.schemas import record_schema
from gateway.provenance import run_account
from gateway.provenance.record import record
from gateway.provenance.verification import Verifier

AgainId = Annotated[str, Path(description="Id of the rerun.", examples=[examples.AGAIN_ID])]


class RecordRoutes:
    """Serves the record of a run, and reruns its deterministic tasks for verification."""

    def __init__(self, runs: RunService, verifier: Verifier) -> None:
        self._runs = runs
        self._verifier = verifier

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["runs"], default_response_class=Response)
        add = router.add_api_route
        add("/runs/{run_id}/record", self.get_run_record, methods=["GET"], **operations.GET_RUN_RECORD)
        add("/runs/{run_id}/verify", self.verify_run, methods=["POST"], **operations.VERIFY_RUN)
        add(
            "/runs/{run_id}/verifications/{again_id}",
            self.get_verification,
            methods=["GET"],
            **operations.GET_VERIFICATION,
        )
        add("/schemas/record", self.get_record_schema, methods=["GET"], **operations.GET_RECORD_SCHEMA)
        return router

    async def get_run_record(self, run_id: RunId) -> Response:
        """Returns the record of a run that has ended: models, commits, parameters, seeds and digests.

        It contains no text, values or file names.
        """
        return json_response(encode(record(await run_account.read(self._runs, run_id))))

    async def verify_run(self, run_id: RunId) -> Response:
        """Reruns the deterministic tasks of a run, with the same model commits and inputs, as a new run.

        The result is at `Location` once that run has ended. It is returned at once if no task can be rerun.
        """
        verification = await self._verifier.start(run_id)
        if verification.ended:
            return json_response(encode(verification))
        return json_response(
            encode(verification), 202, {"location": f"/v1/runs/{run_id}/verifications/{verification.again_run_id}"}
        )

    async def get_verification(self, run_id: RunId, again_id: AgainId) -> Response:
        """Returns the result of a rerun; `ended` is false until it is complete."""
        return json_response(encode(await self._verifier.get_result(run_id, again_id)))

    async def get_record_schema(self) -> Response:
        """Returns the JSON Schema of records."""
        schema: Any = record_schema()
        return json_response(schema)
