"""What an object store's failures mean to whoever asked; its own words name places and keys."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, GenericError, NotFoundError, PermissionDeniedError, UnauthenticatedError

from services.common.errors import Unavailable

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_NO_BUCKET = "NoSuchBucket"
_DENIED = re.compile(r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ExpiredToken|InvalidToken|40[13] )")
_SLOW = re.compile(r"timed out|timeout|TimedOut")
_NO_KEYS = re.compile(r"/latest/(api/token|meta-data/iam/)|//169\.254\.170\.2/|Failed to read \w* ?token file")
"""Without keys the machine's own are asked for, of its cloud: these are the places."""
_CREDENTIALS = "check ARTIFACTS_URL and the AWS_ variables that give access to it"


@contextmanager
def answering(missing: Callable[[], Exception] | None = None) -> Iterator[None]:
    """The block's failures as errors for the caller.

    Args:
        missing: makes what is raised where the object is not there.

    Raises:
        Unavailable: the store does not answer, or refuses.
    """
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        if missing is None or _NO_BUCKET in str(error):
            raise unavailable(error) from error
        raise missing() from error
    except (BaseError, OSError) as error:
        raise unavailable(error) from error


def unavailable(error: Exception) -> Unavailable:
    """An object store's failure in words of ours."""
    if _NO_BUCKET in str(error):
        return Unavailable("the artifact store's bucket does not exist", remedy="make it, or check ARTIFACTS_URL")
    if _NO_KEYS.search(str(error)):
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and check the other AWS_ variables and ARTIFACTS_URL"
        return Unavailable("the artifact store has no keys to be opened with", remedy=remedy)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _refused(error):
        return Unavailable("the artifact store refuses this server", remedy=_CREDENTIALS)
    return Unavailable(
        f"the artifact store does not answer: {_cause(error)}",
        remedy="check ARTIFACTS_URL, its permissions and the free space",
    )


def _refused(error: Exception) -> bool:
    return isinstance(error, GenericError) and _DENIED.search(str(error)) is not None


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    found = _OS_ERROR.search(str(error))
    if found:
        return os.strerror(int(found[1]))
    return "it takes too long" if _SLOW.search(str(error)) else type(error).__name__
