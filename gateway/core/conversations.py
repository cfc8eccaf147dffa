"""Operations on conversations. A conversation is a chain of runs and has the id of the first."""

from collections.abc import Sequence

from gateway.core.runs import RunOperations
from protos.hugginggpt.run_state import ENDED_RUN_STATES
from protos.hugginggpt.v1.gateway_pb2 import ListRunsRequest, ListRunsResponse
from protos.hugginggpt.v1.run_pb2 import Run
from services.common.errors import FailedPrecondition, NotFound

MAX_PAGE_SIZE = 1_000


class ConversationOperations:
    """Lists, reads and deletes conversations; a run that names a parent run continues its conversation.

    Every method raises the ServiceError the orchestrator raised, or Unavailable if it did not answer.
    """

    def __init__(self, runs: RunOperations) -> None:
        self._runs = runs

    async def list(self, page_size: int, page_token: str) -> ListRunsResponse:
        """Lists the first runs of conversations, most recently started first; a page size of 0 means 50."""
        return await self._runs.list(ListRunsRequest(page_size=page_size, page_token=page_token, first_turns=True))

    async def runs(self, conversation_id: str) -> Sequence[Run]:
        """Returns the runs of a conversation, oldest first, without their tasks and answers.

        Raises:
            NotFound: CONVERSATION, the caller has no conversation with this id.
        """
        request = ListRunsRequest(conversation_id=conversation_id, page_size=MAX_PAGE_SIZE)
        page = await self._page(request)
        found = [*page.runs]
        while page.next_page_token:
            request.page_token = page.next_page_token
            page = await self._page(request)
            found += page.runs
        return found[::-1]

    async def last_run(self, conversation_id: str) -> Run:
        """Returns the last run of a conversation.

        Raises:
            NotFound: CONVERSATION, the caller has no conversation with this id.
        """
        return (await self._page(ListRunsRequest(conversation_id=conversation_id, page_size=1))).runs[0]

    async def delete(self, conversation_id: str) -> None:
        """Deletes all runs of a conversation.

        Raises:
            NotFound: CONVERSATION, the caller has no conversation with this id.
            FailedPrecondition: RUNNING, one of its runs is still active; none is deleted.
        """
        runs = await self.runs(conversation_id)
        if active := next((run.run_id for run in runs if run.state not in ENDED_RUN_STATES), None):
            message = f"run {active} of the conversation is still active"
            raise FailedPrecondition(message, reason="RUNNING", remedy="cancel it, or wait until it has ended")
        for run in reversed(runs):  # newest first: if interrupted, the remaining runs still form a conversation
            await self._runs.delete(run.run_id)

    async def _page(self, request: ListRunsRequest) -> ListRunsResponse:
        """Lists runs of a conversation; an empty id would list those of all."""
        page = await self._runs.list(request) if request.conversation_id else ListRunsResponse()
        if not page.runs and not request.page_token:
            message = f"there is no conversation {request.conversation_id[:100]}"
            raise NotFound(message, reason="CONVERSATION", remedy="check the id, or list the conversations")
        return page
