import pytest

from services.planner.plan import Decision, Draft, Note, NoteKind, Task
from services.planner.request import Request
from tests.eval import paper
from tests.eval.certainty import calibration_error, scores
from tests.eval.comparison import Compared, compare
from tests.eval.lines import Answer, Graph, Line
from tests.eval.metrics import Tally, by_type, graph_scores, quantile
from tests.eval.planners import Outcome
from tests.eval.tools import Spelling

A, B, C = "Summarization", "Translation", "Text-to-Speech"
CHAIN = Graph((A, B, C), ((A, B), (B, C)))


def test_f1_counts_names_and_pairs_over_all_requests_together() -> None:
    pairs = [(Graph((A, B), ((A, B),)), CHAIN), (Graph((C,)), Graph((C,)))]
    assert graph_scores(pairs) == {"n": 2, "node_f1": 85.71, "edge_f1": 66.67, "exact": 50.0}  # 2·3/(3+4), 2·1/(1+2)


def test_two_tasks_of_one_name_are_one_node() -> None:
    assert graph_scores([(Graph((A, B)), Graph((A, B, A)))])["node_f1"] == 100


def test_the_order_of_tasks_and_links_does_not_matter() -> None:
    assert graph_scores([(Graph((C, B, A), ((B, C), (A, B))), CHAIN)])["exact"] == 100


def test_a_link_has_a_direction() -> None:
    assert graph_scores([(Graph((A, B), ((B, A),)), Graph((A, B), ((A, B),)))])["edge_f1"] == 0


def test_an_empty_plan_finds_nothing() -> None:
    assert graph_scores([(Graph(), CHAIN)]) == {"n": 1, "node_f1": 0.0, "edge_f1": 0.0, "exact": 0.0}


def test_an_empty_plan_is_right_where_nothing_should_be_planned() -> None:
    assert graph_scores([(Graph(), Graph())]) == {"n": 1, "node_f1": None, "edge_f1": None, "exact": 100.0}


def test_scores_of_no_requests_are_none() -> None:
    nothing = {"n": 0, "node_f1": None, "edge_f1": None, "exact": None}
    assert by_type({}) == {"single": nothing, "chain": nothing, "dag": nothing}


def test_multiset_counts_repetitions() -> None:
    planned, labelled = Graph((A,)), Graph((A, A))
    assert paper.sequential([(planned, labelled)])["f1"] == 66.67


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 2), (0.95, 4), (0.25, 1), (0.26, 2), (1, 4)], ids=["p50", "p95", "p25", "p26", "all"]
)
def test_quantile_is_one_of_the_values(share: float, value: float) -> None:
    assert quantile([4, 1, 3, 2], share) == value


def test_quantile_of_no_values_is_none() -> None:
    assert quantile([], 0.5) is None


# ---------------------------------------------------------------- the paper's


def test_single_tasks_are_weighted_by_support() -> None:
    pairs = [(Graph((planned,)), Graph((labelled,))) for planned, labelled in ((A, A), (A, A), (A, B), (C, B))]
    scores = paper.single(pairs)
    # A: precision 2/3, recall 1, F1 0.8; B: never planned. Each has half of the support.
    assert scores == {"n": 4, "accuracy": 50.0, "precision": 33.33, "recall": 50.0, "f1": 40.0}


def test_plan_with_two_tasks_is_wrong_for_a_single_task() -> None:
    assert paper.single([(Graph((A, B)), Graph((A,)))])["accuracy"] == 0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((), (), 0.0),
        ((A,), (), 1.0),
        ((A, B, C), (A, B, C), 0.0),
        ((A, C), (A, B, C), 1 / 3),
        ((B, A), (A, B), 1.0),
        ((A, B, C), (B, C, A), 2 / 3),
    ],
)
def test_edit_distance_is_divided_by_the_longer_length(
    one: tuple[str, ...], other: tuple[str, ...], expected: float
) -> None:
    assert paper.distance(one, other) == pytest.approx(expected)


def test_chain_is_compared_in_topological_order() -> None:
    listed_backwards = Graph((C, B, A), CHAIN.links)
    scores = paper.sequential([(listed_backwards, CHAIN)])
    assert scores["accuracy"] == 100.0
    assert scores["edit_distance"] == 0.0


def test_cycle_has_the_order_of_its_list() -> None:
    assert paper.in_order(Graph((A, B), ((A, B), (B, A)))) == (A, B)


def test_link_between_tasks_of_the_same_name_is_ignored_in_the_order() -> None:
    assert paper.in_order(Graph((A, B), ((A, A), (A, B)))) == (A, B)


def test_the_graph_f1_counts_tasks_and_links() -> None:
    assert paper.graph([(Graph((A, B), ((A, B),)), CHAIN)]) == {"n": 1, "accuracy": 0.0, "f1": 75.0}  # 2·3/(3+5)


def test_graph_scores_allow_empty_graphs() -> None:
    assert Tally.of_sets([]).f1 is None


# ---------------------------------------------------------------- certainty


def drafted(confidence: float, *notes: NoteKind, tasks: int = 1) -> Draft:
    planned = tuple(Task(number, "translation") for number in range(tasks))
    return Draft(planned, tuple(Note(kind, "") for kind in notes), Decision("embedded", "", confidence))


def line_outcome(line: Line, draft: Draft) -> Compared:
    return compare([line], [Outcome(draft, Request())], Spelling.HUB)[0]


def test_calibration_is_measured_over_ten_bins() -> None:
    cases = [(0.9, True), (0.95, False), (0.3, False), (1.0, True)]
    assert calibration_error(cases) == pytest.approx((abs(2.85 - 2) + 0.3) / 4, abs=1e-4)


def test_calibration_error_without_plans_is_none() -> None:
    assert calibration_error([]) is None


def test_wrong_plan_without_doubt_counts_as_wrong_but_sure() -> None:
    right, wrong = Graph(("translation",)), Graph(("summarization",))
    drafts = [drafted(0.9), drafted(0.9), drafted(0.6), drafted(0.9, NoteKind.CLARIFY), drafted(0.9, NoteKind.CHAT)]
    labels = [right, wrong, wrong, wrong, wrong]
    lines = [Line(number, "", label=Answer(label)) for number, label in enumerate(labels)]
    found = scores([line_outcome(line, draft) for line, draft in zip(lines, drafts, strict=True)])
    assert found["sure"] == 3
    assert found["wrong_but_sure"] == 2
    assert found["wrong_but_sure_ids"] == [1, 4]


def test_abstention_is_right_only_if_it_is_expected() -> None:
    nothing, one = Answer(Graph()), Answer(Graph(("translation",)))
    cases = [
        (Line("asks back", "", label=nothing, expect="clarify"), drafted(0, NoteKind.CLARIFY, tasks=0)),
        (Line("says something else", "", label=nothing, expect="chat"), drafted(0, NoteKind.UNMAPPED, tasks=0)),
        (Line("plans", "", label=nothing, expect="unmapped"), drafted(0.9)),
        (Line("plans what is as right", "", label=nothing, accept=(one,), expect="chat"), drafted(0.9)),
        (Line("plans nothing", "", label=one), drafted(0, tasks=0)),
    ]
    found = scores([line_outcome(line, draft) for line, draft in cases])["abstention"]
    assert found == {"n": 4, "abstained": 75.0, "right_note": 25.0, "abstained_without_need": 100.0}
