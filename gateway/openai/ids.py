"""Ids as OpenAI's clients see them: those of the runs, under another prefix, so that no gateway keeps a table."""

_RUN = "run_"
RESPONSE, COMPLETION, MESSAGE, REASONING = "resp_", "chatcmpl-", "msg_", "rs_"


def named(prefix: str, run_id: str) -> str:
    """The id of a run's response, completion or item."""
    return prefix + run_id.removeprefix(_RUN)


def run_of(response_id: str) -> str:
    """The run a response tells of."""
    return _RUN + response_id.removeprefix(RESPONSE)
