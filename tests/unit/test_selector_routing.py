"""Selection with a routing table."""

from collections import Counter
from typing import Any

import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import MODEL_LOCATION_EXTERNAL, ModelCard
from services.common.errors import FailedPrecondition, NotFound
from services.selector.catalog import ExpertCatalog
from services.selector.routing_status import problems
from services.selector.routing_table import ModelName, Route, RoutingTable, named
from services.selector.selection import Avoid, Constraints, Controller, Mode, Selection, SelectionQuery
from services.selector.selector import Selector
from tests.fakes import card

TASK = "object-detection"
CARDS = (
    *(card("faces", TASK, "Finds faces."), card("people", TASK, "Finds people.")),
    *(card("things", TASK), card("cloud", TASK, location=MODEL_LOCATION_EXTERNAL)),
)


def catalogue(*cards: ModelCard) -> ExpertCatalog:
    catalog = ExpertCatalog(standard_tasks())
    catalog.add_address("vision:1")
    catalog.record_reply("vision:1", DescribeResponse(expert="vision", models=cards))
    return catalog


def selector(table: RoutingTable, mode: Mode = Mode.HYBRID) -> Selector:
    return Selector(catalogue(*CARDS), standard_tasks(), mode, table=table)


def routed(**route: Any) -> Selector:
    return selector(RoutingTable({TASK: Route(**route)}))


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in choice.chosen]


def test_model_of_the_table_is_first_despite_the_request_text() -> None:
    choice = routed(model="things@1").choose(SelectionQuery(TASK, "find the faces"))
    assert ids(choice)[:2] == ["things", "faces"]
    assert choice.controller == Controller.ROUTED
    assert choice.chosen[0].reason.partition(";")[0] == "first by the routing table"


def test_ranking_applies_if_the_model_of_the_table_fails_or_is_missing() -> None:
    failing = routed(model="things").choose(SelectionQuery(TASK, "find the faces", avoid=[Avoid(model="things")]))
    unknown = routed(model="nothing").choose(SelectionQuery(TASK, "find the faces"))
    assert ids(failing)[0] == "faces"
    assert failing.controller == Controller.RANK
    assert ids(unknown)[0] == "faces"
    assert unknown.controller == Controller.RANK


def test_external_model_of_the_table_is_first_only_under_an_open_policy() -> None:
    model_selector = routed(model="cloud")
    assert ids(model_selector.choose(SelectionQuery(TASK, allows_external=True)))[0] == "cloud"
    assert "cloud" not in ids(model_selector.choose(SelectionQuery(TASK)))


def test_only_listed_candidates_are_selected_unless_pinned() -> None:
    model_selector = routed(candidates=["people", "things"])
    assert sorted(ids(model_selector.choose(SelectionQuery(TASK, "find the faces")))) == ["people", "things"]
    assert ids(model_selector.choose(SelectionQuery(TASK, model="faces"))) == ["faces"]


@pytest.mark.parametrize(
    "table",
    [RoutingTable({TASK: Route(forbidden=["faces"])}), RoutingTable(forbidden=(ModelName("faces", "1"),))],
)
def test_forbidden_model_is_no_fallback(table: RoutingTable) -> None:
    avoid = [Avoid(model="people"), Avoid(model="things")]
    assert "faces" not in ids(selector(table).choose(SelectionQuery(TASK, "find the faces", avoid=avoid)))
    with pytest.raises(FailedPrecondition, match="model faces is forbidden for object-detection") as raised:
        selector(table).choose(SelectionQuery(TASK, model="faces"))
    assert raised.value.reason == "POLICY"
    assert "SELECTOR_ROUTES" in raised.value.remedy


def test_error_states_that_all_models_are_forbidden() -> None:
    with pytest.raises(FailedPrecondition, match="every model for object-detection is forbidden"):
        routed(forbidden=["faces", "people", "things", "cloud"]).choose(SelectionQuery(TASK))


def test_task_with_only_forbidden_models_is_not_in_the_catalogue() -> None:
    for forbidden, planned in (
        ((ModelName("faces"),), [TASK]),
        (tuple(ModelName(offered.id) for offered in CARDS), []),
    ):
        catalog = ExpertCatalog(standard_tasks(), table=RoutingTable(forbidden=forbidden))
        catalog.add_address("vision:1")
        catalog.record_reply("vision:1", DescribeResponse(expert="vision", models=CARDS))
        assert list(catalog.view.tasks) == planned


def test_error_lists_offered_models_if_no_candidate_is_offered() -> None:
    with pytest.raises(NotFound, match="allows only gone, and the offered models are faces, people") as raised:
        routed(candidates=["gone"]).choose(SelectionQuery(TASK))
    assert raised.value.reason == "MODEL"


def test_runs_are_distributed_by_weight_and_each_keeps_its_model() -> None:
    model_selector = routed(candidates=[{"model": "faces", "weight": 3}, {"model": "people", "weight": 1}, "things"])
    runs = [SelectionQuery(TASK, seed=f"run_{number}") for number in range(2000)]
    first = [ids(model_selector.choose(run))[0] for run in runs]
    assert first == [ids(model_selector.choose(run))[0] for run in runs]
    shares = Counter(first)
    assert set(shares) == {"faces", "people"}
    assert shares["people"] == pytest.approx(500, abs=80)


def test_failing_model_moves_only_its_own_runs() -> None:
    model_selector = routed(candidates=[{"model": name, "weight": 1} for name in ("faces", "people", "things")])
    for number in range(100):
        before = ids(model_selector.choose(SelectionQuery(TASK, seed=f"{number}")))[0]
        after = ids(model_selector.choose(SelectionQuery(TASK, seed=f"{number}", avoid=[Avoid(model="faces")])))[0]
        assert before in {after, "faces"}
        assert after != "faces"


def test_reason_of_a_weighted_choice_has_the_weights() -> None:
    model_selector = routed(candidates=[{"model": "faces", "weight": 1}])
    assert (
        model_selector.choose(SelectionQuery(TASK))
        .chosen[0]
        .reason.startswith("chosen for this run by its weight, 1 of 1")
    )


def test_pin_of_the_run_overrides_the_table() -> None:
    choice = routed(model="things").choose(SelectionQuery(TASK, model="people"))
    assert ids(choice) == ["people"]
    assert choice.controller == Controller.PINNED


def test_shadow_model_is_not_a_candidate() -> None:
    choice = routed(shadow="faces").choose(SelectionQuery(TASK, "find the faces"))
    assert "faces" not in ids(choice)
    assert choice.shadow
    assert choice.shadow.offer.card.id == "faces"


@pytest.mark.parametrize(
    "query",
    [
        SelectionQuery(TASK),
        SelectionQuery(TASK, model="faces"),
        SelectionQuery(TASK, allows_external=True, mode=Mode.LOCAL),
        SelectionQuery(TASK, allows_external=True, constraints=Constraints(allowed=frozenset({"faces"}))),
    ],
    ids=["local policy", "a pin", "mode local", "constraints"],
)
def test_shadow_must_satisfy_the_query(query: SelectionQuery) -> None:
    assert routed(shadow="cloud").choose(query).shadow is None


def test_score_counts_less_than_request_text() -> None:
    table = RoutingTable(scores={TASK: {"things": 1.0, "faces": 0.0}})
    assert ids(selector(table).choose(SelectionQuery(TASK)))[0] == "things"
    assert "scored 1.00" in selector(table).choose(SelectionQuery(TASK)).chosen[0].reason
    assert ids(selector(table).choose(SelectionQuery(TASK, "find the faces")))[0] == "faces"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            RoutingTable({"object-detectio": Route(model="faces")}),
            "offers object-detectio now; did you mean object-detection?",
        ),
        (
            RoutingTable({TASK: Route(model="face")}),
            "no expert offers face for object-detection now; did you mean faces?",
        ),
        (RoutingTable({TASK: Route(model="faces@9")}), "offers faces@9 for object-detection now; it is offered at 1"),
        (RoutingTable(forbidden=(ModelName("peopel"),)), "no expert offers peopel now; did you mean people?"),
    ],
)
def test_unknown_names_are_reported_with_similar_ones(table: RoutingTable, message: str) -> None:
    (problem,) = problems(table, catalogue(*CARDS).view)
    assert message in problem


def test_model_name_may_start_with_an_at_sign() -> None:
    assert named("@org/model") == ModelName("@org/model")
    assert named("org/model@1") == ModelName("org/model", "1")
    assert str(named("org/model@1")) == "org/model@1"
