"""What is said where no model can be chosen: what stands in the way, and what would help."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from protos.hugginggpt.v1.artifact_pb2 import MODALITY_AUDIO, MODALITY_IMAGE, MODALITY_TEXT, MODALITY_VIDEO
from protos.hugginggpt.v1.task_pb2 import TaskSpec
from services.common.errors import FailedPrecondition, NotFound
from services.selector.routing_table import SETTING, Route
from services.selector.task_offers import Offer

_MENTIONED = 3
_REPAIR = "see the expert's log for why it did not load, or use another model"


def nobody(task: str, offered: Iterable[str], standard: Mapping[str, TaskSpec], failed: Sequence[Offer]) -> NotFound:
    """No expert offers the task, or none of its models works."""
    if failed:
        return NotFound(f"every model for {task} has failed: {_failures(failed)}", reason="TASK", remedy=_REPAIR)
    similar = get_close_matches(task, offered, n=_MENTIONED)
    remedies = [f"use {' or '.join(similar)}"] if similar else []
    if task in standard:
        where = f"{_folder(standard[task])} or remote"
        remedies.append(f"add an expert that offers it, such as {where}, with: hugginggpt experts add")
    what = f"no expert offers {task} now" if task in standard else f"there is no task {task}: no expert offers it"
    remedy = "; or ".join(remedies) or "see what is offered with: hugginggpt tasks"
    return NotFound(what, reason="TASK", remedy=remedy)


def unknown_model(task: str, model: str, revision: str, offers: Sequence[Offer], failed: Sequence[Offer]) -> NotFound:
    """The pinned model, or its pinned commit, is not there."""
    if others := [offer.card.revision or "unnamed" for offer in offers if offer.card.id == model]:
        what = f"model {model} for {task} is there at revision {', '.join(others)}, not {revision}"
        return NotFound(what, reason="MODEL", remedy="pin a revision that is there, or none")
    if broken := [offer for offer in failed if offer.card.id == model]:
        return NotFound(f"the pinned model has failed: {_failures(broken)}", reason="MODEL", remedy=_REPAIR)
    names = list(dict.fromkeys(offer.card.id for offer in offers))
    near = get_close_matches(model, names, n=_MENTIONED, cutoff=0.4) or names[:_MENTIONED]
    what = f"no expert offers model {model} for {task}"
    return NotFound(what, reason="MODEL", remedy=f"pin {' or '.join(near)}, or no model")


def unconstrained(task: str, constraints: str) -> NotFound:
    """No model satisfies what was asked of it."""
    return NotFound(
        f"no model for {task} satisfies the constraints: {constraints}",
        reason="MODEL",
        remedy="loosen the constraints, or add an expert with such a model",
    )


def only_outside(task: str) -> FailedPrecondition:
    """Models are there, but the data policy keeps bytes away from them."""
    return FailedPrecondition(
        f"{task} is offered only outside the house, and the data policy is local",
        reason="POLICY",
        remedy="add an expert of your own that offers it, or allow the data policy open",
    )


def wrong_mode(task: str, mode: str) -> FailedPrecondition:
    """Models are there, but not where the inference mode wants them."""
    where = "inside" if mode == "remote" else "outside"
    return FailedPrecondition(
        f"{task} is offered only {where} the house, and the inference mode is {mode}",
        reason="POLICY",
        remedy="use the inference mode hybrid",
    )


def forbidden(task: str, model: str) -> FailedPrecondition:
    """The routing table forbids the pinned model, or all there are."""
    what = f"model {model} is forbidden for {task}" if model else f"every model for {task} is forbidden"
    other = "pin another model, or none" if model else "add an expert with another model"
    return FailedPrecondition(
        f"{what} by this house's routing table", reason="POLICY", remedy=f"{other}; or have {SETTING} changed"
    )


def no_candidate(task: str, route: Route, offers: Sequence[Offer]) -> NotFound:
    """Models are there, but none that the routing table lets be chosen."""
    there = ", ".join(dict.fromkeys(offer.card.id for offer in offers))
    named = ", ".join(map(str, filter(None, (route.model, *route.listed))))
    what = f"the routing table lets only {named} be chosen" if named else f"{route.shadow} is only a shadow"
    return NotFound(
        f"nobody can be chosen for {task}: {what}, and there is {there}",
        reason="MODEL",
        remedy=f"start an expert with a model that may be chosen, or have {SETTING} changed",
    )


def _failures(failed: Sequence[Offer]) -> str:
    return "; ".join(f"{offer.card.id}: {offer.card.failure or 'no reason given'}" for offer in failed[:_MENTIONED])


def _folder(spec: TaskSpec) -> str:
    """The folder of experts/ where models of such a task belong."""
    takes = {port.modality for port in spec.inputs}
    gives = {port.modality for port in spec.outputs}
    if MODALITY_VIDEO in takes | gives:
        return "video"
    if MODALITY_AUDIO in takes | gives:
        return "audio"
    if MODALITY_IMAGE in gives and MODALITY_TEXT in takes:
        return "diffusion"
    return "vision" if MODALITY_IMAGE in takes else "text"
