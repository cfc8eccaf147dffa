"""Ids of OpenAI objects: the run id with another prefix, so that no table is needed."""

_RUN = "run_"
RESPONSE, COMPLETION, MESSAGE, REASONING = "resp_", "chatcmpl-", "msg_", "rs_"


def object_id(prefix: str, run_id: str) -> str:
    """Returns the id of a run's response, completion or item."""
    return prefix + run_id.removeprefix(_RUN)


def run_id_of(response_id: str) -> str:
    """Returns the run id of a response."""
    return _RUN + response_id.removeprefix(RESPONSE)
