"""Runs as OpenAI's routes start and read them."""

from dataclasses import replace

from gateway.admission import Admission
from gateway.openai import prompt_shortcuts
from gateway.openai.message_parts import Parts
from gateway.openai.owned_run_stream import Attended, Recited, Source, Watched
from gateway.openai.request_options import Terms
from gateway.openai.response_format import TEXT
from gateway.openai.response_projection import Projection, projection
from gateway.runs import Runs
from protos.hugginggpt.v1.gateway_pb2 import ListRunsRequest
from protos.hugginggpt.v1.run_pb2 import RunSpec
from services.common.errors import NotFound


class House:
    """What stands behind OpenAI's routes.

    Args:
        runs: where they are.
        admission: what lets them in.
        parts: reads messages.
    """

    def __init__(self, runs: Runs, admission: Admission, parts: Parts) -> None:
        self.runs = runs
        self.parts = parts
        self._admission = admission

    async def attended(self, spec: RunSpec, terms: Terms, key: str) -> Source:
        """A run that ends when its client leaves; for a front end's own prompt an answer without a run.

        Raises:
            ServiceError: it is not accepted.
        """
        if (words := prompt_shortcuts.answer(spec)) is not None:
            replace(terms, form=TEXT).note(spec)
            return Recited(prompt_shortcuts.events(spec, words))
        await self._admission.admit(spec, key=key)
        terms.note(spec)
        return Attended(self.runs, await self.runs.start(spec), keep=terms.store)

    async def background(self, spec: RunSpec, terms: Terms, key: str) -> Source:
        """A run that goes on by itself.

        Raises:
            ServiceError: it is not accepted.
        """
        await self._admission.admit(spec, key=key)
        terms.note(spec)
        return Watched(await self.runs.start(spec))

    async def last_of(self, conversation_id: str) -> str:
        """The last run of a conversation.

        Raises:
            NotFound: CONVERSATION, the caller has none of that id.
        """
        wanted = ListRunsRequest(conversation_id=conversation_id, page_size=1)
        found = (await self.runs.list(wanted)).runs if conversation_id else ()
        if not found:
            remedy = "check the id; GET /v1/conversations lists them"
            raise NotFound(f"there is no conversation {conversation_id[:100]}", reason="CONVERSATION", remedy=remedy)
        return found[0].run_id

    async def told(self, run_id: str, site: str) -> Projection:
        """A run's response as it stands.

        Raises:
            NotFound: RUN, the caller has none of that id.
        """
        run = await self.runs.get(run_id)
        found = projection(run.spec, site)
        source = Watched(await self.runs.watch(run_id, 0), run.last_sequence)
        try:
            while (event := await source.read()) is not None:
                found.take(event)
        finally:
            await source.close()
        return found
