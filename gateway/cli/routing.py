"""Describes the rules of the deployment's routing table for a model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JsonObject = Mapping[str, Any]


def describe_model_rules(card: JsonObject, routes: Sequence[JsonObject]) -> Iterator[str]:
    """Describes the rules for a model and its task.

    Args:
        card: card of the model.
        routes: routes of the gateway; those without a task apply to all.
    """
    for route in routes:
        if route.get("task", card["task"]) == card["task"]:
            yield from _rules(card, route)


def problems(routes: Sequence[JsonObject]) -> list[str]:
    """Problems of the table, such as unknown model names."""
    return [problem for route in routes for problem in route.get("problems", ())]


def _rules(card: JsonObject, route: JsonObject) -> Iterator[str]:
    candidates = route.get("candidates", ())
    total = sum(each["weight"] for each in candidates)
    own = next((each for each in candidates if _matches(each, card)), None)
    is_forbidden = any(_matches(each, card) for each in route.get("forbidden", ()))
    if is_forbidden:
        yield "forbidden"
    elif _matches(route.get("model", {}), card):
        yield "always first"
    elif _matches(route.get("shadow", {}), card):
        yield "shadow"
    elif own and own["weight"]:
        yield f"weight {own['weight']:g} of {total:g}"
    elif candidates:
        yield "candidate" if own else "not chosen"
    if card["id"] in route.get("scores", {}):
        yield f"score {route['scores'][card['id']]:.2f}"


def _matches(name: JsonObject, card: JsonObject) -> bool:
    return name.get("id") == card["id"] and name.get("revision", "") in {"", card.get("revision", "")}
