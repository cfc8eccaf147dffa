"""What the routing table makes of a choice."""

from collections import Counter
from typing import Any

import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, ModelCard
from services.common.errors import FailedPrecondition, NotFound
from services.selector.catalog import Catalog
from services.selector.constraints import Constraints
from services.selector.query import Avoid, Mode, SelectionQuery
from services.selector.routing_status import problems
from services.selector.routing_table import ModelName, Route, RoutingTable, named
from services.selector.selector import Controller, Selection, Selector
from tests.fakes import card

TASK = "object-detection"
CARDS = (
    *(card("faces", TASK, "Finds faces."), card("people", TASK, "Finds people.")),
    *(card("things", TASK), card("cloud", TASK, location=MODEL_LOCATION_EXTERNAL)),
)


def catalogue(*cards: ModelCard) -> Catalog:
    catalog = Catalog(standard_tasks())
    catalog.listed("vision:1")
    catalog.record_reply("vision:1", DescribeResponse(expert="vision", models=cards))
    return catalog


def selector(table: RoutingTable, mode: Mode = Mode.HYBRID) -> Selector:
    return Selector(catalogue(*CARDS), standard_tasks(), mode, table=table)


def routed(**route: Any) -> Selector:
    return selector(RoutingTable({TASK: Route(**route)}))


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in choice.chosen]


def test_the_first_of_the_table_is_first_whatever_the_words_say() -> None:
    choice = routed(model="things@1").choose(SelectionQuery(TASK, "find the faces"))
    assert ids(choice)[:2] == ["things", "faces"]
    assert choice.controller == Controller.ROUTED
    assert choice.chosen[0].reason.partition(";")[0] == "first by the routing table"


def test_a_first_that_fails_or_is_not_there_leaves_the_ranking() -> None:
    failing = routed(model="things").choose(SelectionQuery(TASK, "find the faces", avoid=[Avoid(model="things")]))
    gone = routed(model="nothing").choose(SelectionQuery(TASK, "find the faces"))
    assert ids(failing)[0] == "faces"
    assert failing.controller == Controller.RANK
    assert ids(gone)[0] == "faces"
    assert gone.controller == Controller.RANK


def test_a_first_outside_the_house_is_first_only_where_bytes_may_leave() -> None:
    choosing = routed(model="cloud")
    assert ids(choosing.choose(SelectionQuery(TASK, allows_external=True)))[0] == "cloud"
    assert "cloud" not in ids(choosing.choose(SelectionQuery(TASK)))


def test_only_candidates_are_chosen_but_a_run_may_pin_another() -> None:
    choosing = routed(candidates=["people", "things"])
    assert sorted(ids(choosing.choose(SelectionQuery(TASK, "find the faces")))) == ["people", "things"]
    assert ids(choosing.choose(SelectionQuery(TASK, model="faces"))) == ["faces"]


@pytest.mark.parametrize(
    "table",
    [RoutingTable({TASK: Route(forbidden=["faces"])}), RoutingTable(forbidden=(ModelName("faces", "1"),))],
)
def test_what_is_forbidden_is_not_even_a_fallback(table: RoutingTable) -> None:
    avoid = [Avoid(model="people"), Avoid(model="things")]
    assert "faces" not in ids(selector(table).choose(SelectionQuery(TASK, "find the faces", avoid=avoid)))
    with pytest.raises(FailedPrecondition, match="model faces is forbidden for object-detection") as refused:
        selector(table).choose(SelectionQuery(TASK, model="faces"))
    assert refused.value.reason == "POLICY"
    assert "SELECTOR_ROUTES" in refused.value.remedy


def test_where_all_are_forbidden_that_is_said() -> None:
    with pytest.raises(FailedPrecondition, match="every model for object-detection is forbidden"):
        routed(forbidden=["faces", "people", "things", "cloud"]).choose(SelectionQuery(TASK))


def test_a_task_of_which_all_models_are_forbidden_is_not_planned() -> None:
    for forbidden, planned in (((ModelName("faces"),), [TASK]), (tuple(ModelName(each.id) for each in CARDS), [])):
        catalog = Catalog(standard_tasks(), table=RoutingTable(forbidden=forbidden))
        catalog.listed("vision:1")
        catalog.record_reply("vision:1", DescribeResponse(expert="vision", models=CARDS))
        assert list(catalog.view.tasks) == planned


def test_where_no_candidate_is_there_it_is_said_who_is() -> None:
    with pytest.raises(NotFound, match="allows only gone, and the offered models are faces, people") as refused:
        routed(candidates=["gone"]).choose(SelectionQuery(TASK))
    assert refused.value.reason == "MODEL"


def test_weights_spread_the_runs_and_a_run_stays_where_it_is() -> None:
    choosing = routed(candidates=[{"model": "faces", "weight": 3}, {"model": "people", "weight": 1}, "things"])
    runs = [SelectionQuery(TASK, seed=f"run_{number}") for number in range(2000)]
    first = [ids(choosing.choose(run))[0] for run in runs]
    assert first == [ids(choosing.choose(run))[0] for run in runs]
    shares = Counter(first)
    assert set(shares) == {"faces", "people"}
    assert shares["people"] == pytest.approx(500, abs=80)


def test_a_drawn_model_that_fails_moves_only_its_own_runs() -> None:
    choosing = routed(candidates=[{"model": name, "weight": 1} for name in ("faces", "people", "things")])
    for number in range(100):
        before = ids(choosing.choose(SelectionQuery(TASK, seed=f"{number}")))[0]
        after = ids(choosing.choose(SelectionQuery(TASK, seed=f"{number}", avoid=[Avoid(model="faces")])))[0]
        assert before in {after, "faces"}
        assert after != "faces"


def test_the_reason_of_a_draw_tells_the_weights() -> None:
    choosing = routed(candidates=[{"model": "faces", "weight": 1}])
    assert (
        choosing.choose(SelectionQuery(TASK)).chosen[0].reason.startswith("chosen for this run by its weight, 1 of 1")
    )


def test_a_pin_of_the_run_goes_before_the_table() -> None:
    choice = routed(model="things").choose(SelectionQuery(TASK, model="people"))
    assert ids(choice) == ["people"]
    assert choice.controller == Controller.PINNED


def test_a_shadow_is_never_chosen_and_runs_beside() -> None:
    choice = routed(shadow="faces").choose(SelectionQuery(TASK, "find the faces"))
    assert "faces" not in ids(choice)
    assert choice.shadow
    assert choice.shadow.offer.card.id == "faces"


@pytest.mark.parametrize(
    "wanted",
    [
        SelectionQuery(TASK),
        SelectionQuery(TASK, model="faces"),
        SelectionQuery(TASK, allows_external=True, mode=Mode.LOCAL),
        SelectionQuery(TASK, allows_external=True, constraints=Constraints(allowed=frozenset({"faces"}))),
    ],
    ids=["no byte may leave", "a pin", "mode local", "constraints"],
)
def test_a_shadow_is_held_to_what_the_run_demands(wanted: SelectionQuery) -> None:
    assert routed(shadow="cloud").choose(wanted).shadow is None


def test_a_score_moves_a_model_but_less_than_words_do() -> None:
    table = RoutingTable(scores={TASK: {"things": 1.0, "faces": 0.0}})
    assert ids(selector(table).choose(SelectionQuery(TASK)))[0] == "things"
    assert "scored 1.00" in selector(table).choose(SelectionQuery(TASK)).chosen[0].reason
    assert ids(selector(table).choose(SelectionQuery(TASK, "find the faces")))[0] == "faces"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            RoutingTable({"object-detectio": Route(model="faces")}),
            "offers object-detectio now; there is object-detection",
        ),
        (RoutingTable({TASK: Route(model="face")}), "no expert offers face for object-detection now; there is faces"),
        (RoutingTable({TASK: Route(model="faces@9")}), "offers faces@9 for object-detection now; it is there at 1"),
        (RoutingTable(forbidden=(ModelName("peopel"),)), "no expert offers peopel now; there is people"),
    ],
)
def test_names_that_nothing_goes_by_are_told_with_what_is_like_them(table: RoutingTable, said: str) -> None:
    (problem,) = problems(table, catalogue(*CARDS).view)
    assert said in problem


def test_a_name_may_have_an_at_sign_of_its_own() -> None:
    assert named("@org/model") == ModelName("@org/model")
    assert named("org/model@1") == ModelName("org/model", "1")
    assert str(named("org/model@1")) == "org/model@1"
