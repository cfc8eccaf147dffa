"""Documents of several pages: their limit, and the choice among the answers of the pages."""

from collections.abc import Sequence

from experts.host.handler import NO_ANSWER, Media, Outputs
from experts.torch_host.classification import DIGITS
from services.common.errors import InvalidRequest

MAX_PAGES = 20


def check_pages(count: int, document: Media, model_id: str) -> None:
    """Checks the number of pages.

    Raises:
        InvalidRequest: there are too many.
    """
    if count > MAX_PAGES:
        raise InvalidRequest(
            f"{document.name} has {count} pages; the limit of {model_id} is {MAX_PAGES}",
            remedy="send only the pages that the question is about",
            port="image",
        )


def choose_answer(answers: Sequence[tuple[str, float, int]]) -> Outputs:
    """Returns the outputs of the most probable answer; answers are text, score and page, and may be empty."""
    non_empty = [answer for answer in answers if answer[0]]
    if not non_empty:
        return {"text": NO_ANSWER, "details": {"answer": "", "score": 0.0, "page": 0}}
    answer, score, page = max(non_empty, key=lambda answer: answer[1])
    return {"text": answer, "details": {"answer": answer, "score": round(score, DIGITS), "page": page}}
