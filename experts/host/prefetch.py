"""What an expert's models need, brought to this machine before it runs: by a job, or before a container starts."""

import structlog

from experts.host import load_context
from experts.host.devices import Places, Repositories
from experts.host.expert import Expert, Offer
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


def prefetch(expert: Expert, places: Places) -> bool:
    """Fetches what all models of an expert need for where they are to compute, and loads none.

    Returns:
        Whether all of it is here; of each model that is not, one line in the log says why.
    """
    engine = expert.devices
    if not isinstance(engine, Repositories):
        log.info("nothing to fetch: its models come with their packages, or live elsewhere", expert=expert.name)
        return True
    log.info("fetching", expert=expert.name, models=sorted({offer.card.id for offer in expert.offers}))
    here = [_fetched(offer, _kind(places.of(offer.card.id).device, engine)) for offer in expert.offers]
    return all(here)


def _kind(device: str, engine: Repositories) -> str:
    return engine.made_for() if device == "auto" else device


def _fetched(offer: Offer, device: str) -> bool:
    card = offer.card
    load = load_context.Loading(card.revision, task=card.task, model_id=card.id, device=device, fetching=True)
    try:
        with load_context.told(load):
            offer.loader(card.id, device)
    except load_context.Fetched:
        pass
    except ServiceError as error:
        facts = {"error": error.message, "remedy": error.remedy}
        log.error("model not fetched", model=card.id, task=card.task, **facts)  # noqa: TRY400  # the trace says no more
        return False
    log.info("model is here", model=card.id, task=card.task)
    return True
