"""Records and verifications over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import Response

from gateway.http.run_routes import RunId, json_response
from gateway.json_encoder import encode
from gateway.openapi import provenance_operations
from gateway.provenance import run_account
from gateway.provenance.record import record
from gateway.provenance.schema import record_schema
from gateway.provenance.verification import Verifying
from gateway.runs import Runs

AgainId = Annotated[
    str, Path(description="The id of the run that did it again.", examples=[provenance_operations.AGAIN_ID])
]


class RecordRoutes:
    """What can be shown of a run, and whether it does the same again."""

    def __init__(self, runs: Runs, verifying: Verifying) -> None:
        self._runs = runs
        self._verifying = verifying

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["runs"], default_response_class=Response)
        add = router.add_api_route
        add("/runs/{run_id}/record", self.record, methods=["GET"], **provenance_operations.RECORD)
        add("/runs/{run_id}/verify", self.verify, methods=["POST"], **provenance_operations.VERIFY)
        add(
            "/runs/{run_id}/verifications/{again_id}",
            self.verification,
            methods=["GET"],
            **provenance_operations.VERIFICATION,
        )
        add("/schemas/record", self.schema, methods=["GET"], **provenance_operations.SCHEMA)
        return router

    async def record(self, run_id: RunId) -> Response:
        """What did what in a run that has ended: models, commits, parameters, seeds, digests.

        Texts, values and names of files are not in it.
        """
        return json_response(encode(record(await run_account.read(self._runs, run_id))))

    async def verify(self, run_id: RunId) -> Response:
        """Does the deterministic tasks of a run again, by the same commits with the same values, as a run of its own.

        What came of it is at `Location`, once that run has ended. Where nothing can be done again all is said at once.
        """
        begun = await self._verifying.begin(run_id)
        if begun.ended:
            return json_response(encode(begun))
        return json_response(encode(begun), 202, {"location": f"/v1/runs/{run_id}/verifications/{begun.again_run_id}"})

    async def verification(self, run_id: RunId, again_id: AgainId) -> Response:
        """What came of doing a run again: `ended` is false until all is known."""
        return json_response(encode(await self._verifying.outcome(run_id, again_id)))

    async def schema(self) -> Response:
        """The JSON Schema of records."""
        schema: Any = record_schema()
        return json_response(schema)
