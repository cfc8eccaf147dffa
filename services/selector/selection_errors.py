"""Errors of selections without a candidate, with reasons and remedies."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_AUDIO, MODALITY_IMAGE, MODALITY_TEXT, MODALITY_VIDEO
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, NotFound
from services.selector.routing_table import SETTING, Route
from services.selector.task_offers import Offer

_MENTIONED = 3
_REPAIR = "see the expert's log for why it did not load, or use another model"


def no_offer(task: str, offered: Iterable[str], standard: Mapping[str, TaskSpec], failed: Sequence[Offer]) -> NotFound:
    """The error if no expert offers a task, or all its models have failed."""
    if failed:
        return NotFound(f"every model for {task} has failed: {_failures(failed)}", reason="TASK", remedy=_REPAIR)
    similar = get_close_matches(task, offered, n=_MENTIONED)
    remedies = [f"use {' or '.join(similar)}"] if similar else []
    if task in standard:
        where = f"{_folder(standard[task])} or remote"
        remedies.append(f"add an expert that offers it, such as {where}, with: hugginggpt experts add")
    message = f"no expert offers {task} now" if task in standard else f"there is no task {task}: no expert offers it"
    remedy = "; or ".join(remedies) or "see what is offered with: hugginggpt tasks"
    return NotFound(message, reason="TASK", remedy=remedy)


def unknown_model(task: str, model: str, revision: str, offers: Sequence[Offer], failed: Sequence[Offer]) -> NotFound:
    """The error if the pinned model, or its pinned commit, is not offered."""
    if other_revisions := [offer.card.revision or "unnamed" for offer in offers if offer.card.id == model]:
        message = f"model {model} for {task} is offered at revision {', '.join(other_revisions)}, not {revision}"
        return NotFound(message, reason="MODEL", remedy="pin an offered revision, or none")
    if failed_pins := [offer for offer in failed if offer.card.id == model]:
        return NotFound(f"the pinned model has failed: {_failures(failed_pins)}", reason="MODEL", remedy=_REPAIR)
    names = list(dict.fromkeys(offer.card.id for offer in offers))
    similar = get_close_matches(model, names, n=_MENTIONED, cutoff=0.4) or names[:_MENTIONED]
    message = f"no expert offers model {model} for {task}"
    return NotFound(message, reason="MODEL", remedy=f"pin {' or '.join(similar)}, or no model")


def constraints_unmet(task: str, constraints: str) -> NotFound:
    """The error if no model satisfies the constraints."""
    return NotFound(
        f"no model for {task} satisfies the constraints: {constraints}",
        reason="MODEL",
        remedy="loosen the constraints, or add an expert with such a model",
    )


def only_external(task: str) -> FailedPrecondition:
    """The error if all models are external and the data policy is local."""
    return FailedPrecondition(
        f"{task} is offered only by external experts, and the data policy is local",
        reason="POLICY",
        remedy="add an internal expert that offers it, or set the data policy to open",
    )


def wrong_mode(task: str, mode: str) -> FailedPrecondition:
    """The error if no model is where the inference mode requires it."""
    where = "internal" if mode == "remote" else "external"
    return FailedPrecondition(
        f"{task} is offered only by {where} experts, and the inference mode is {mode}",
        reason="POLICY",
        remedy="use the inference mode hybrid",
    )


def forbidden(task: str, model: str) -> FailedPrecondition:
    """The error if the routing table forbids the pinned model, or all models."""
    message = f"model {model} is forbidden for {task}" if model else f"every model for {task} is forbidden"
    remedy = "pin another model, or none" if model else "add an expert with another model"
    return FailedPrecondition(
        f"{message} by the deployment's routing table", reason="POLICY", remedy=f"{remedy}; or change {SETTING}"
    )


def no_candidate(task: str, route: Route, offers: Sequence[Offer]) -> NotFound:
    """The error if the routing table allows none of the offered models."""
    offered_models = ", ".join(dict.fromkeys(offer.card.id for offer in offers))
    allowed = ", ".join(map(str, filter(None, (route.model, *route.listed))))
    message = f"the routing table allows only {allowed}" if allowed else f"{route.shadow} is only a shadow"
    return NotFound(
        f"no candidate for {task}: {message}, and the offered models are {offered_models}",
        reason="MODEL",
        remedy=f"start an expert with an allowed model, or change {SETTING}",
    )


def _failures(failed: Sequence[Offer]) -> str:
    return "; ".join(f"{offer.card.id}: {offer.card.failure or 'no reason given'}" for offer in failed[:_MENTIONED])


def _folder(spec: TaskSpec) -> str:
    """The folder of experts/ for models of such a task."""
    inputs = {port.modality for port in spec.inputs}
    outputs = {port.modality for port in spec.outputs}
    if MODALITY_VIDEO in inputs | outputs:
        return "video"
    if MODALITY_AUDIO in inputs | outputs:
        return "audio"
    if MODALITY_IMAGE in outputs and MODALITY_TEXT in inputs:
        return "diffusion"
    return "vision" if MODALITY_IMAGE in inputs else "text"
