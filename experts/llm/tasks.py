"""The expert `llm`: the configured LLM, by prompt, for tasks on text and, if it sees, on pictures."""

from importlib.util import find_spec

import structlog

from experts.endpoints.prompts import CHAT_TASKS, VISION_TASKS
from experts.host.expert import Expert, Offer, build_offers
from experts.host.handler import Loader
from experts.llm import documents
from experts.llm.model import LlmConnection, LlmModel, model_id
from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_INTERNAL,
    MODEL_METHOD_LLM,
    ModelCard,
)
from services.llm.settings import LlmSettings

log = structlog.get_logger(__name__)

TEXT_TASKS = tuple(task for task in CHAT_TASKS if task not in VISION_TASKS)
DOCUMENT_TASK = "document-question-answering"
PICTURE_TASKS = tuple(task for task in CHAT_TASKS if task in VISION_TASKS and task != DOCUMENT_TASK)

_DESCRIPTIONS = {
    "text-classification": "Sentiment of a text: positive, negative or neutral. Does not tell topics or languages.",
    "image-to-text": "Describes what a picture shows, as a caption.",
}
_DESCRIPTION = "By the general language model {model}, which knows many languages."


def EXPERT(name: str, version: str) -> Expert:  # noqa: N802  # a part of the expert, as TASKS is of others
    """Returns the expert with the tasks that the configured LLM can run; none without an LLM."""
    settings = LlmSettings.of("expert")
    if not settings.base_url:
        log.warning("no LLM configured", remedy="set LLM_BASE_URL and LLM_MODEL")
        return Expert(name, (), version=version)
    connection = LlmConnection(settings)
    offers = tuple(_build_offer(task, connection) for task in _offered_tasks(settings))
    isolated = documents.ISOLATED if documents.can_recognize() else ()
    return Expert(
        name,
        offers,
        (model_id(settings),),
        version,
        isolated_modules=isolated,
        connections=lambda _changed: connection.open(),
    )


def _offered_tasks(settings: LlmSettings) -> tuple[str, ...]:
    """Returns the tasks; those with pictures or pages only where these can be decoded and read."""
    if not (find_spec("PIL") and find_spec("pypdfium2")):
        return TEXT_TASKS
    reads_pages = settings.vision or documents.can_recognize()
    return TEXT_TASKS + ((DOCUMENT_TASK,) if reads_pages else ()) + (PICTURE_TASKS if settings.vision else ())


def _build_offer(task: str, connection: LlmConnection) -> Offer:
    settings = connection.settings
    card = ModelCard(
        id=model_id(settings),
        task=task,
        description=f"{_DESCRIPTIONS.get(task, '')} {_DESCRIPTION.format(model=settings.model)}".strip(),
        location=MODEL_LOCATION_INTERNAL if settings.internal else MODEL_LOCATION_EXTERNAL,
        method=MODEL_METHOD_LLM,
    )
    loader: Loader = lambda _id, _device: LlmModel(task, connection)  # noqa: E731  # one line
    (offer,) = build_offers([card], standard_tasks(), {task: loader})
    return offer
