"""What a deployment's routing table says about a model, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]


def of_model(card: Told, routes: Sequence[Told]) -> Iterator[str]:
    """What is laid down about a model for its task.

    Args:
        card: of the model.
        routes: as the gateway tells them; those without a task are for any.
    """
    for route in routes:
        if route.get("task", card["task"]) == card["task"]:
            yield from _said(card, route)


def problems(routes: Sequence[Told]) -> list[str]:
    """Names in the table that nothing goes by."""
    return [problem for route in routes for problem in route.get("problems", ())]


def _said(card: Told, route: Told) -> Iterator[str]:
    listed = route.get("candidates", ())
    total = sum(each["weight"] for each in listed)
    own = next((each for each in listed if _means(each, card)), None)
    forbidden = any(_means(each, card) for each in route.get("forbidden", ()))
    if forbidden:
        yield "forbidden"
    elif _means(route.get("model", {}), card):
        yield "always first"
    elif _means(route.get("shadow", {}), card):
        yield "shadow"
    elif own and own["weight"]:
        yield f"weight {own['weight']:g} of {total:g}"
    elif listed:
        yield "candidate" if own else "not chosen"
    if card["id"] in route.get("scores", {}):
        yield f"score {route['scores'][card['id']]:.2f}"


def _means(name: Told, card: Told) -> bool:
    return name.get("id") == card["id"] and name.get("revision", "") in {"", card.get("revision", "")}
