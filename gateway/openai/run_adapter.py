"""Starts and reads runs for the OpenAI-compatible routes."""

from dataclasses import replace

from gateway.core.conversations import ConversationOperations
from gateway.core.runs import RunOperations
from gateway.core.validation import RequestValidator
from gateway.openai import prompt_shortcuts
from gateway.openai.messages import MessageParts
from gateway.openai.request_options import TEXT, RequestOptions
from gateway.openai.response_projection import Projection, projection
from gateway.openai.streams import EventSource, OwnedRun, RecordedEvents, WatchedRun
from protos.hugginggpt.v1.run_pb2 import RunSpec


class RunAdapter:
    """Starts and reads runs.

    Args:
        runs: client of the orchestrator.
        validator: validates new runs.
        parts: reads message parts.
    """

    def __init__(self, runs: RunOperations, validator: RequestValidator, parts: MessageParts) -> None:
        self.runs = runs
        self.parts = parts
        self._validator = validator

    async def start_owned(self, spec: RunSpec, options: RequestOptions, key: str) -> EventSource:
        """Starts a run owned by the connection; answers a front end's own prompt without a run.

        Raises:
            ServiceError: the run is rejected.
        """
        if (text := prompt_shortcuts.answer(spec)) is not None:
            replace(options, form=TEXT).store_in(spec)
            return RecordedEvents(prompt_shortcuts.events(spec, text))
        await self._validator.validate_run(spec, key=key)
        options.store_in(spec)
        return OwnedRun(self.runs, await self.runs.start(spec), keep=options.store)

    async def start_background(self, spec: RunSpec, options: RequestOptions, key: str) -> EventSource:
        """Starts a run that continues without the connection.

        Raises:
            ServiceError: the run is rejected.
        """
        await self._validator.validate_run(spec, key=key)
        options.store_in(spec)
        return WatchedRun(await self.runs.start(spec))

    async def last_of(self, conversation_id: str) -> str:
        """Returns the last run of a conversation.

        Raises:
            NotFound: CONVERSATION, the caller has no conversation with this id.
        """
        return (await ConversationOperations(self.runs).last_run(conversation_id)).run_id

    async def projection_of(self, run_id: str, site: str) -> Projection:
        """Projects the present state of a run.

        Raises:
            NotFound: RUN, the caller has no run with this id.
        """
        run = await self.runs.get(run_id)
        projected = projection(run.spec, site)
        source = WatchedRun(await self.runs.watch(run_id, 0), run.last_sequence)
        try:
            while (event := await source.read()) is not None:
                projected.take(event)
        finally:
            await source.close()
        return projected
