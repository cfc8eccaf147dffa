import pytest

from services.selector.ranking import ModelFeatures, Presence, QueryTerm, Ranking, RankingQuery
from services.selector.tokens import stemmed, words


def wish(text: str = "", *languages: str, internal_first: bool = True) -> RankingQuery:
    terms = {stem: QueryTerm(word, 1.0) for stem, word in words(text)}
    return RankingQuery(terms, frozenset(languages), internal_first)


def merits(description: str = "", presence: Presence = Presence.READY, **fields: object) -> ModelFeatures:
    return ModelFeatures(stemmed(description), presence, **fields)  # type: ignore[arg-type]  # whatever a row of a table says


def order(wanted: RankingQuery, *models: ModelFeatures, failing: frozenset[int] = frozenset()) -> list[int]:
    return [place.position for place in Ranking(models).best(wanted, range(len(models)), 5, failing)]


FACES, PEOPLE = merits("Finds faces in photographs"), merits("Finds and counts people, standing or walking")
MOOD, TONGUE = merits("Sentiment: happy or sad, positive or negative"), merits("The language a text is written in")
PLAIN = merits()

BETTER = {
    "the one that says what is asked": (wish("find the faces"), FACES, PEOPLE),
    "the one that says it in another form": (wish("how many people are there"), PEOPLE, FACES),
    "a mood for how it sounds": (wish("tell me whether it sounds happy"), MOOD, TONGUE),
    "a language for what it is written in": (wish("which language is this written in"), TONGUE, MOOD),
    "the right one, though it is not loaded": (wish("is it happy"), merits("happy", Presence.LOADABLE), TONGUE),
    "the right one, though it sleeps": (wish("is it happy"), merits("happy", Presence.DORMANT), TONGUE),
    "loaded before loadable": (wish(), PLAIN, merits(presence=Presence.LOADABLE)),
    "loadable before silent": (wish(), merits(presence=Presence.LOADABLE), merits(presence=Presence.AWAY)),
    "silent before asleep": (wish(), merits(presence=Presence.AWAY), merits(presence=Presence.DORMANT)),
    "one that knows the language": (wish("", "de"), merits(languages=frozenset({"de"})), PLAIN),
    "one that does not say which it knows": (wish("", "de"), PLAIN, merits(languages=frozenset({"en"}))),
    "the faster": (wish(), merits(median=0.1), merits(median=5.0)),
    "the more popular": (wish(), merits(downloads=10**6, likes=500), merits(downloads=10, likes=1)),
    "one of the house": (wish("faces"), merits(), merits("faces", external=True, downloads=10**9)),
    "one of the house, though it sleeps": (wish(), merits(presence=Presence.DORMANT), merits(external=True)),
}


@pytest.mark.parametrize(("wanted", "better", "worse"), BETTER.values(), ids=BETTER)
def test_comes_first(wanted: RankingQuery, better: ModelFeatures, worse: ModelFeatures) -> None:
    assert order(wanted, better, worse) == [0, 1]
    assert order(wanted, worse, better) == [1, 0]


def test_a_tie_keeps_the_order_given() -> None:
    assert order(wish("anything"), PLAIN, PLAIN, PLAIN) == [0, 1, 2]


def test_milliseconds_do_not_matter() -> None:
    assert order(wish(), merits(median=0.04), merits(median=0.001)) == [0, 1]


def test_what_fails_comes_last() -> None:
    assert order(wish("faces"), FACES, merits(external=True), failing=frozenset({0})) == [1, 0]


def test_outside_is_as_good_as_inside_where_the_mode_says_so() -> None:
    outside = merits("faces", external=True)
    assert order(wish("faces", internal_first=False), PEOPLE, outside) == [1, 0]


def test_only_the_admitted_are_listed_and_no_more_than_asked() -> None:
    ranking = Ranking([PLAIN] * 9)
    assert [place.position for place in ranking.best(wish(), [2, 4, 6, 8], 3, frozenset())] == [2, 4, 6]


def test_the_reason_says_why() -> None:
    models = [merits("happy or sad moods of a text", median=0.003), TONGUE]
    best = Ranking(models).best(wish("is the text happy, and in which moods"), [0, 1], 5, frozenset())[0]
    assert best.reason == "matches “happy” and “moods” of the request; loaded; median 3 ms"


def test_scores_fall_along_the_list() -> None:
    scores = [place.score for place in Ranking([PEOPLE, FACES, PLAIN]).best(wish("faces"), range(3), 5, frozenset())]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
