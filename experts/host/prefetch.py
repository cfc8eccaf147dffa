"""Downloads the files of an expert's models before it serves, and records the models that it could not get."""

import json
from pathlib import Path

import structlog

from experts.host import load_context
from experts.host.devices import Placements, Repositories
from experts.host.expert import Expert, Offer
from services.common.errors import ServiceError

log = structlog.get_logger(__name__)


def prefetch(expert: Expert, placements: Placements, *, allow_missing: bool = False) -> bool:
    """Downloads the files that all models of an expert need on their devices, without loading them.

    Args:
        expert: the expert, with only its allowed models.
        placements: devices of its models.
        allow_missing: accept models that could not be downloaded, by this process or, offline, by an earlier one: the
            expert can serve the others.

    Returns:
        Whether all files are present, or with allow_missing all that can be had; the log has the reason for each model
        that is not.
    """
    engine = expert.devices
    if not isinstance(engine, Repositories):
        log.info("nothing to fetch: its models come with their packages, or are remote", expert=expert.name)
        return True
    models = {offer.card.id for offer in expert.offers}
    log.info("fetching", expert=expert.name, models=sorted(models))
    missing = {
        offer.card.id
        for offer in expert.offers
        if not _fetch(offer, _device(placements.of(offer.card.id).device, engine))
    }
    record = engine.cache() / "missing" / f"{expert.name}.json"
    if engine.is_offline():
        tried = _read_record(record)
    else:
        tried = missing
        _write_record(record, missing)
    if missing and allow_missing and missing < models and missing <= tried:
        log.warning("the expert serves without these models", expert=expert.name, missing=sorted(missing))
        return True
    return not missing


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


def _read_record(file: Path) -> set[str]:
    """Returns the models that the last process with network access could not download; none if there was no such."""
    return set(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else set()


def _write_record(file: Path, missing: set[str]) -> None:
    """Replaces the record in one step, because other pods read it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(sorted(missing)), encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        log.warning("cannot record the missing models", file=str(file), error=error.strerror)
