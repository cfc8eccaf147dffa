"""What the client raises, as callers understand it."""

from collections.abc import Iterator
from contextlib import contextmanager

from experts.endpoints.http_errors import Refusal
from experts.remote.targets import Route
from services.common.errors import CorruptData, DeadlineExceeded, Unavailable

ACCESS = "set HF_TOKEN to a token that may use Inference Providers"

NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What the client raises on answers that are not as they should be; it checks no types."""


def nonsense(model_id: str) -> CorruptData:
    what = f"{model_id} answered with something else than its task gives"
    return CorruptData(what, remedy="take another model")


@contextmanager
def explained(route: Route) -> Iterator[None]:
    """Turns what comes from the network into expected failures."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError

    model, where = route.model_id, route.provider or "the Hub"
    try:
        yield
    except (InferenceTimeoutError, httpx2.TimeoutException, TimeoutError) as error:
        if isinstance(error.__cause__ or error, httpx2.ConnectTimeout):
            raise _lost(f"{where} cannot be reached for {model}") from None
        what = f"{where} did not answer for {model} in time"
        raise DeadlineExceeded(what, remedy="send a smaller input, or raise REMOTE_TIMEOUT_SECONDS") from error
    except (HfHubHTTPError, httpx2.HTTPStatusError) as error:
        raise _refusal(route, error.response).error() from None  # its message may hold the address of the request
    except (*NONSENSE, httpx2.InvalidURL) as error:
        behind = error.__context__  # the client breaks on some errors' bodies
        if isinstance(behind, httpx2.HTTPStatusError):
            raise _refusal(route, behind.response).error() from None
        raise nonsense(model) from error
    except (httpx2.ConnectError, httpx2.ProxyError) as error:
        raise _lost(f"{where} cannot be reached for {model}") from error
    except httpx2.HTTPError as error:
        raise _lost(f"{where} broke off before {model} had answered") from error


def _lost(what: str) -> Unavailable:
    return Unavailable(what, remedy="see to the network, or try again")


def _refusal(route: Route, response: "httpx2.Response") -> Refusal:  # type: ignore[name-defined]  # noqa: F821  # loaded late
    headers = {name.lower(): value for name, value in response.headers.items()}
    page = f"https://huggingface.co/{route.model_id}"
    key = response.request.headers.get("authorization", "").rpartition(" ")[2]
    where, status = route.provider or "the Hub", response.status_code
    return Refusal(route.model_id, where, status, headers, response.text, ACCESS, page, key)
