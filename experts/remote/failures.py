"""What the client raises, as callers understand it."""

from collections.abc import Iterator
from contextlib import contextmanager

from experts.endpoints.refusals import Refusal
from experts.remote.routes import Route
from services.runtime.errors import CorruptData, DeadlineExceeded, FailedPrecondition, Unavailable

ACCESS = "set HF_TOKEN to a token that may use Inference Providers"
_OFFLINE = "unset HF_HUB_OFFLINE, or take a model of the house"


NONSENSE = (ValueError, TypeError, LookupError, AttributeError)
"""What the client raises on answers that are not as they should be; it checks no types."""


def nonsense(model_id: str) -> CorruptData:
    what = f"{model_id} answered with something else than its task gives"
    return CorruptData(what, remedy="take another model")


@contextmanager
def explained(route: Route) -> Iterator[None]:
    """Turns what comes from the network into expected failures."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError, OfflineModeIsEnabled

    model, where = route.model_id, route.provider or "the Hub"
    try:
        yield
    except OfflineModeIsEnabled as error:
        what = f"{model} runs elsewhere, and this house is offline"
        raise FailedPrecondition(what, reason="LOAD_FAILED", remedy=_OFFLINE) from error
    except (InferenceTimeoutError, httpx2.TimeoutException) as error:
        what = f"{where} did not answer for {model} in time"
        raise DeadlineExceeded(what, remedy="send a smaller input, or raise REMOTE_TIMEOUT_SECONDS") from error
    except (HfHubHTTPError, httpx2.HTTPStatusError) as error:
        raise _refusal(route, error.response).error() from None  # its message may hold the address of the request
    except NONSENSE as error:
        behind = error.__context__  # the client breaks on some errors' bodies
        if isinstance(behind, httpx2.HTTPStatusError):
            raise _refusal(route, behind.response).error() from None
        raise nonsense(model) from error
    except httpx2.HTTPError as error:
        raise Unavailable(f"{where} cannot be reached for {model}", remedy="see to the network") from error


def _refusal(route: Route, response: "httpx2.Response") -> Refusal:  # type: ignore[name-defined]  # noqa: F821  # loaded late
    headers = {name.lower(): value for name, value in response.headers.items()}
    page = f"https://huggingface.co/{route.model_id}"
    where, status = route.provider or "the Hub", response.status_code
    return Refusal(route.model_id, where, status, headers, response.text, access=ACCESS, page=page)
