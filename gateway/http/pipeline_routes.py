"""Routes of /v1/pipelines."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from gateway.core.pipelines import PipelineOperations
from gateway.http.batch_request import check_single_source
from gateway.http.json_body import JSON_BYTES, json_response, read_limited
from gateway.json_decoder import decode
from gateway.json_encoder import encode
from gateway.json_text import loads, refuse
from gateway.openapi import examples, operations
from protos.hugginggpt.pipeline_file import pipeline_schema
from protos.hugginggpt.v1 import gateway_pb2 as pb
from protos.hugginggpt.v1.pipeline_pb2 import PipelineRef

LAST_VERSION = 2**31 - 1

Name = Annotated[str, Path(description="Name of the pipeline.", examples=[examples.PIPELINE_NAME])]
Version = Annotated[int, Query(ge=0, le=LAST_VERSION, description="Version number; 0 means the latest.")]
PageSize = Annotated[int, Query(ge=0, le=1000, description="0 means 50.")]
PageToken = Annotated[str, Query(description="`next_page_token` of the previous page.")]


class PipelineRoutes:
    """Saves, lists, shows and deletes pipelines."""

    def __init__(self, pipelines: PipelineOperations) -> None:
        self._pipelines = pipelines
        self._schema = pipeline_schema()

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/v1", tags=["pipelines"], default_response_class=Response)
        add = router.add_api_route
        add("/pipelines", self.list_pipelines, methods=["GET"], **operations.LIST_PIPELINES)
        add("/pipelines/{name}", self.save_pipeline, methods=["PUT"], **operations.SAVE_PIPELINE)
        add("/pipelines/{name}", self.get_pipeline, methods=["GET"], **operations.GET_PIPELINE)
        add("/pipelines/{name}", self.delete_pipeline, methods=["DELETE"], **operations.NO_CONTENT)
        add("/pipelines/{name}/versions", self.list_pipeline_versions, methods=["GET"], **operations.LIST_PIPELINES)
        add("/pipeline.schema.json", self.get_pipeline_schema, methods=["GET"], **operations.GET_PIPELINE_SCHEMA)
        return router

    async def save_pipeline(self, name: Name, request: Request) -> Response:
        """Saves a plan under a name: an explicit plan, or the plan of a run that has ended.

        References `{"input": "…"}` in its tasks become the pipeline's inputs. Versions are immutable: a different plan
        becomes the next version. `POST /v1/runs` and `POST /v1/pipeline-batches` run a pipeline without planning.
        """
        document = loads(await read_limited(request.stream(), JSON_BYTES, "the body"))
        if not isinstance(document, dict):
            refuse("", "is not a JSON object", remedy='send an object such as {"run_id": "run_…"}')
        if "name" in document:
            refuse("name", "is part of the path", remedy="leave it out of the body", reason="UNKNOWN_FIELD")
        check_single_source(document, {"plan", "run_id"})
        saved = await self._pipelines.save(decode(pb.SavePipelineRequest, {**document, "name": name}))
        headers = {"location": f"/v1/pipelines/{name}?version={saved.pipeline.version}"}
        return json_response(encode(saved.pipeline), 201 if saved.new else 200, headers)

    async def list_pipelines(self, page_size: PageSize = 0, page_token: PageToken = "") -> Response:
        """Lists pipelines by name, each with its latest version."""
        return await self._page(pb.ListPipelinesRequest(page_size=page_size, page_token=page_token))

    async def get_pipeline(self, name: Name, version: Version = 0) -> Response:
        """Returns a pipeline: its inputs, its plan and the run it was saved from."""
        return json_response(encode(await self._pipelines.get(PipelineRef(name=name, version=version))))

    async def list_pipeline_versions(self, name: Name, page_size: PageSize = 0, page_token: PageToken = "") -> Response:
        """Lists the versions of a pipeline, newest first."""
        await self._pipelines.get(PipelineRef(name=name))
        return await self._page(pb.ListPipelinesRequest(name=name, page_size=page_size, page_token=page_token))

    async def delete_pipeline(
        self,
        name: Name,
        version: Annotated[int, Query(ge=0, le=LAST_VERSION, description="Version number; 0 means all.")] = 0,
    ) -> Response:
        """Deletes a pipeline or one of its versions; batches that have started continue."""
        await self._pipelines.delete(PipelineRef(name=name, version=version))
        return Response(status_code=204)

    async def get_pipeline_schema(self) -> Response:
        """The JSON Schema of the file that `hugginggpt export` writes and `import` reads."""
        return Response(self._schema, media_type="application/json")

    async def _page(self, request: pb.ListPipelinesRequest) -> Response:
        page = await self._pipelines.list(request)
        more = {"next_page_token": page.next_page_token} if page.next_page_token else {}
        return json_response({"object": "list", "data": [encode(each) for each in page.pipelines], **more})
