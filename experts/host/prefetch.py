"""Downloads the files of an expert's models before it runs: in a job, or before a container starts."""

import structlog

from experts.host import load_context
from experts.host.devices import Placements, Repositories
from experts.host.expert import Expert, Offer
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


def prefetch(expert: Expert, placements: Placements) -> bool:
    """Downloads the files that all models of an expert need on their devices, without loading them.

    Returns:
        Whether all files are present; the log has the reason for each model that is not.
    """
    engine = expert.devices
    if not isinstance(engine, Repositories):
        log.info("nothing to fetch: its models come with their packages, or are remote", expert=expert.name)
        return True
    log.info("fetching", expert=expert.name, models=sorted({offer.card.id for offer in expert.offers}))
    results = [_fetch(offer, _device(placements.of(offer.card.id).device, engine)) for offer in expert.offers]
    return all(results)


def _device(device: str, engine: Repositories) -> str:
    return engine.target_device() if device == "auto" else device


def _fetch(offer: Offer, device: str) -> bool:
    card = offer.card
    context = load_context.LoadContext(card.revision, task=card.task, model_id=card.id, device=device, fetch_only=True)
    try:
        with load_context.use(context):
            offer.loader(card.id, device)
    except load_context.FilesFetched:
        pass
    except ServiceError as error:
        facts = {"error": error.message, "remedy": error.remedy}
        log.error("model not fetched", model=card.id, task=card.task, **facts)  # noqa: TRY400  # the stack trace adds nothing
        return False
    log.info("model fetched", model=card.id, task=card.task)
    return True
