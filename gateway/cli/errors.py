"""What goes wrong for the person at the command line."""

from gateway.cli.remedies import remedy
from gateway.client.errors import HuggingGPTError, InvalidRequest

FAILED, USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses: it did not come about; it was asked wrongly; Ctrl-C."""


class Problem(Exception):
    """Names the cause and the remedy; status is what the command exits with."""

    def __init__(self, message: str, *, remedy: str = "", status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.status = status

    @classmethod
    def of(cls, error: HuggingGPTError) -> "Problem":
        """An error of the client, with an exit status and a remedy for the command line."""
        return cls(error.message, remedy=remedy(error), status=USAGE if isinstance(error, InvalidRequest) else FAILED)


class ConnectionFailed(Problem):
    """No server accepts connections at an address."""
