"""Translates errors of huggingface_hub's client into service errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from experts.endpoints.http_errors import ErrorResponse
from experts.remote.routes import Route
from services.common.errors import CorruptData, DeadlineExceeded, Unavailable

ACCESS = "set HF_TOKEN to a token that may use Inference Providers"

REPLY_ERRORS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Errors that the client raises on malformed answers, whose types it does not check."""


def invalid_reply(model_id: str) -> CorruptData:
    message = f"the reply of {model_id} does not have the format of its task"
    return CorruptData(message, remedy="use another model")


@contextmanager
def translate_errors(route: Route) -> Iterator[None]:
    """Translates network and client errors into service errors."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, InferenceTimeoutError

    model, provider = route.model_id, route.provider or "the Hub"
    try:
        yield
    except (InferenceTimeoutError, httpx2.TimeoutException, TimeoutError) as error:
        if isinstance(error.__cause__ or error, httpx2.ConnectTimeout):
            raise _unavailable_error(f"{provider} cannot be reached for {model}") from None
        message = f"{provider} did not answer for {model} in time"
        raise DeadlineExceeded(message, remedy="send a smaller input, or raise REMOTE_TIMEOUT_SECONDS") from error
    except (HfHubHTTPError, httpx2.HTTPStatusError) as error:
        raise _error_response(
            route, error.response
        ).to_error() from None  # its message may contain the URL of the request
    except (*REPLY_ERRORS, httpx2.InvalidURL) as error:
        original = error.__context__  # the client fails on the bodies of some error responses
        if isinstance(original, httpx2.HTTPStatusError):
            raise _error_response(route, original.response).to_error() from None
        raise invalid_reply(model) from error
    except (httpx2.ConnectError, httpx2.ProxyError) as error:
        raise _unavailable_error(f"{provider} cannot be reached for {model}") from error
    except httpx2.HTTPError as error:
        raise _unavailable_error(f"{provider} closed the connection before {model} had answered") from error


def _unavailable_error(message: str) -> Unavailable:
    return Unavailable(message, remedy="check the network, or try again")


def _error_response(route: Route, response: "httpx2.Response") -> ErrorResponse:  # type: ignore[name-defined]  # noqa: F821  # loaded late
    headers = {name.lower(): value for name, value in response.headers.items()}
    terms_url = f"https://huggingface.co/{route.model_id}"
    key = response.request.headers.get("authorization", "").rpartition(" ")[2]
    provider, status = route.provider or "the Hub", response.status_code
    return ErrorResponse(route.model_id, provider, status, headers, response.text, ACCESS, terms_url, key)
