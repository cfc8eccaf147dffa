"""Errors of the command line."""

from gateway.cli.remedies import remedy
from gateway.client.errors import HuggingGPTError, InvalidRequest

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses: failure, invalid arguments, Ctrl-C."""


class Problem(Exception):
    """An expected failure: message, remedy, and exit status of the command."""

    def __init__(self, message: str, *, remedy: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.status = status

    @classmethod
    def of(cls, error: HuggingGPTError) -> "Problem":
        """Converts an error of the client; adds the exit status and a remedy for the command line."""
        return cls(error.message, remedy=remedy(error), status=USAGE if isinstance(error, InvalidRequest) else FAILED)


class ConnectionFailed(Problem):
    """No server accepts connections at an address."""
