import pytest

from services.selector.ranking import (
    ModelFeatures,
    QueryTerm,
    Ranking,
    RankingQuery,
    Readiness,
    affirmed,
    stem,
    stemmed,
    stems,
    tokenize,
)


def terms(text: str = "", *languages: str, internal_first: bool = True) -> RankingQuery:
    query_terms = {key: QueryTerm(written, 1.0) for key, written in tokenize(text)}
    return RankingQuery(query_terms, frozenset(languages), internal_first)


def features(description: str = "", readiness: Readiness = Readiness.READY, **fields: object) -> ModelFeatures:
    return ModelFeatures(stemmed(description), readiness, **fields)  # type: ignore[arg-type]  # fields of the class


def ranked(query: RankingQuery, *models: ModelFeatures, failing: frozenset[int] = frozenset()) -> list[int]:
    return [entry.position for entry in Ranking(models).best(query, range(len(models)), 5, failing)]


FACES, PEOPLE = features("Finds faces in photographs"), features("Finds and counts people, standing or walking")
MOOD, LANGUAGE = (
    features("Sentiment: happy or sad, positive or negative"),
    features("The language a text is written in"),
)
PLAIN = features()

BETTER = {
    "description contains the term": (terms("find the faces"), FACES, PEOPLE),
    "description contains another form of the term": (terms("how many people are there"), PEOPLE, FACES),
    "sentiment for how it sounds": (terms("tell me whether it sounds happy"), MOOD, LANGUAGE),
    "language for what it is written in": (terms("which language is this written in"), LANGUAGE, MOOD),
    "matching, although to be loaded": (terms("is it happy"), features("happy", Readiness.LOADABLE), LANGUAGE),
    "matching, although dormant": (terms("is it happy"), features("happy", Readiness.DORMANT), LANGUAGE),
    "loaded before loadable": (terms(), PLAIN, features(readiness=Readiness.LOADABLE)),
    "loadable before unreachable": (
        terms(),
        features(readiness=Readiness.LOADABLE),
        features(readiness=Readiness.UNREACHABLE),
    ),
    "unreachable before dormant": (
        terms(),
        features(readiness=Readiness.UNREACHABLE),
        features(readiness=Readiness.DORMANT),
    ),
    "supports the language": (terms("", "de"), features(languages=frozenset({"de"})), PLAIN),
    "unspecified languages before other languages": (
        terms("", "de"),
        PLAIN,
        features(languages=frozenset({"en"})),
    ),
    "faster": (terms(), features(median=0.1), features(median=5.0)),
    "more popular": (terms(), features(downloads=10**6, likes=500), features(downloads=10, likes=1)),
    "internal": (terms("faces"), features(), features("faces", external=True, downloads=10**9)),
    "internal, although dormant": (terms(), features(readiness=Readiness.DORMANT), features(external=True)),
}


@pytest.mark.parametrize(("query", "better", "worse"), BETTER.values(), ids=BETTER)
def test_better_model_is_first(query: RankingQuery, better: ModelFeatures, worse: ModelFeatures) -> None:
    assert ranked(query, better, worse) == [0, 1]
    assert ranked(query, worse, better) == [1, 0]


def test_equal_models_keep_their_order() -> None:
    assert ranked(terms("anything"), PLAIN, PLAIN, PLAIN) == [0, 1, 2]


def test_medians_below_the_threshold_count_as_equal() -> None:
    assert ranked(terms(), features(median=0.04), features(median=0.001)) == [0, 1]


def test_failing_model_is_last() -> None:
    assert ranked(terms("faces"), FACES, features(external=True), failing=frozenset({0})) == [1, 0]


def test_external_model_ranks_equally_if_internal_models_are_not_preferred() -> None:
    external = features("faces", external=True)
    assert ranked(terms("faces", internal_first=False), PEOPLE, external) == [1, 0]


def test_only_given_positions_are_ranked_up_to_the_limit() -> None:
    ranking = Ranking([PLAIN] * 9)
    assert [entry.position for entry in ranking.best(terms(), [2, 4, 6, 8], 3, frozenset())] == [2, 4, 6]


def test_reason_names_terms_state_and_median() -> None:
    models = [features("happy or sad moods of a text", median=0.003), LANGUAGE]
    best = Ranking(models).best(terms("is the text happy, and in which moods"), [0, 1], 5, frozenset())[0]
    assert best.reason == "matches “happy” and “moods” of the request; loaded; median 3 ms"


def test_scores_are_in_descending_order() -> None:
    scores = [entry.score for entry in Ranking([PEOPLE, FACES, PLAIN]).best(terms("faces"), range(3), 5, frozenset())]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1


@pytest.mark.parametrize(
    "text",
    [
        "face faces",
        "happy happier happiness happily",
        "detect detects detected detector detection",
        "language languages",
        "class classes",
        "blur blurred blurring",
        "translate translates translation translator",
        "positive positively",
    ],
)
def test_forms_of_a_word_share_one_stem(text: str) -> None:
    assert len(stemmed(text)) == 1


@pytest.mark.parametrize("text", ["face people", "language sentiment", "person personal", "read write"])
def test_different_words_have_different_stems(text: str) -> None:
    assert len(stemmed(text)) == 2


def test_stop_words_are_removed() -> None:
    assert stemmed("Please tell me whether it is") == frozenset()


def test_model_names_are_split_into_words() -> None:
    assert stemmed("acme/face_detector-v2") == stemmed("acme face detector v2")


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("Sentiment of English text. Does not tell topics or languages.", {"sentiment", "english", "text"}),
        ("Which language a text is in; cannot tell sentiment: reliable", {"language", "text", "reliable"}),
        ("A rough transcript. No punctuation, no other language.", {"rough", "transcript"}),
    ],
)
def test_negated_clauses_are_ignored(description: str, expected: set[str]) -> None:
    assert stemmed(affirmed(description)) == {stem(word) for word in expected}


def test_stems_come_from_name_and_start_of_description() -> None:
    assert stems("acme/yunet", "Finds faces, not topics.") == stemmed("acme yunet finds faces")
    assert "late" not in stems("m", "word " * 400 + "late")


LLM = features("Knows many languages", is_llm=True)
RULES = features("Finds the answer to a simple question", is_rules=True)
MADE_FOR_IT = features("Finds spans")


def test_llm_ranks_below_models_made_for_the_task_and_above_rules() -> None:
    assert ranked(terms(), RULES, LLM, MADE_FOR_IT) == [2, 1, 0]


def test_rules_rank_below_the_llm_even_if_their_description_fits() -> None:
    assert ranked(terms("answer a simple question"), RULES, LLM) == [1, 0]


def test_rules_rank_as_other_models_without_an_llm() -> None:
    assert ranked(terms("answer a simple question"), MADE_FOR_IT, RULES) == [1, 0]


def test_rules_rank_first_while_the_llm_fails() -> None:
    assert ranked(terms(), LLM, RULES, failing=frozenset({0})) == [1, 0]


def test_rules_rank_as_other_models_if_the_llm_is_not_admitted() -> None:
    models = (MADE_FOR_IT, RULES, LLM)
    best = Ranking(models).best(terms("answer a simple question"), [0, 1], 5, frozenset())
    assert [entry.position for entry in best] == [1, 0]


def test_external_llm_of_the_deployment_ranks_above_its_rules() -> None:
    external = features("Knows many languages", is_llm=True, external=True)
    provider = features("Runs elsewhere", external=True)
    assert ranked(terms(), provider, RULES, external) == [2, 1, 0]


def test_model_that_exceeds_its_machines_memory_ranks_below_one_that_fits() -> None:
    large, small = features("Finds the faces", exceeds_memory=True), features("Draws", Readiness.LOADABLE)
    assert ranked(terms("find the faces"), large, small) == [1, 0]
    reasons = [entry.reason for entry in Ranking([large, small]).best(terms("find"), range(2), 5, frozenset())]
    assert "needs more memory than its machine has" in reasons[1]


def test_reason_names_the_llm() -> None:
    (entry,) = Ranking([LLM]).best(terms(), [0], 5, frozenset())
    assert "the configured LLM" in entry.reason
