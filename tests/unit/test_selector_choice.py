"""What is chosen, and what is said where nothing can be."""

import math
from collections.abc import Sequence

import pytest

from protos.hugginggpt.tasks import standard_tasks
from protos.hugginggpt.v1.expert_pb2 import DescribeResponse
from protos.hugginggpt.v1.model_pb2 import (
    MODEL_LOCATION_EXTERNAL,
    MODEL_LOCATION_UNSPECIFIED,
    MODEL_STATE_FAILED,
    ModelCard,
)
from services.common.errors import FailedPrecondition, InvalidRequest, NotFound, ServiceError
from services.selector.catalog import Catalog
from services.selector.constraints import Constraints
from services.selector.query import Avoid, Mode, SelectionQuery, languages_of
from services.selector.selector import Selection, Selector
from tests.fakes import card

TEXT, OBJECTS = "text-classification", "object-detection"

MOOD = card("vader", TEXT, "Sentiment of English text: happy or sad, positive or negative.", license="mit")
TONGUE = card("langid", TEXT, "Which of 97 languages a text is written in.", license="bsd", parameter_count=10)
FACES = card("yunet", OBJECTS, "Finds faces.")
PEOPLE = card("hog", OBJECTS, "Finds people who stand or walk.")
CLOUD = card(
    "cloud/distilbert", TEXT, "Sentiment, happy or sad.", location=MODEL_LOCATION_EXTERNAL, region="EU-central-1"
)
CLOUD_ONLY = card("cloud/svd", "text-to-video", location=MODEL_LOCATION_EXTERNAL)
UNSAID = card("anyone/whisper", "automatic-speech-recognition", location=MODEL_LOCATION_UNSPECIFIED)
BROKEN = card("broken", "summarization", state=MODEL_STATE_FAILED, failure="file is gone")
OIL, PHOTO = card("oil", "text-to-image", "Oil paintings."), card("photo", "text-to-image", "Photographs.")
DULL = card("detr", OBJECTS, "Finds 80 things.")


def selector(mode: Mode = Mode.HYBRID) -> Selector:
    standard = standard_tasks()
    catalog = Catalog(standard)
    experts = {
        "lite": ("lite:1", (MOOD, TONGUE, FACES, PEOPLE, BROKEN)),
        "remote": ("remote:1", (CLOUD, CLOUD_ONLY, UNSAID)),
        "vision": ("vision:1", (DULL, PHOTO, OIL)),
    }
    for name, (address, cards) in experts.items():
        catalog.listed(address)
        catalog.record_reply(address, DescribeResponse(expert=name, models=cards))
    return Selector(catalog, standard, mode)


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in choice.chosen]


@pytest.mark.parametrize(
    ("task", "source", "best"),
    [
        (TEXT, "tell me whether it sounds happy", MOOD),
        (TEXT, "is this review positive or negative?", MOOD),
        (TEXT, "which language is this written in", TONGUE),
        (OBJECTS, "find the faces", FACES),
        (OBJECTS, "how many people are in the picture", PEOPLE),
        (TEXT, "", MOOD),
    ],
)
def test_the_words_of_the_task_decide(task: str, source: str, best: ModelCard) -> None:
    assert ids(selector().choose(SelectionQuery(task, source)))[0] == best.id


def test_the_rest_of_the_request_weighs_less_than_the_task_s_own_words() -> None:
    request = "Which language is it in, which languages are these, and is it sad?"
    assert ids(selector().choose(SelectionQuery(TEXT, "is it sad", request)))[0] == MOOD.id
    assert ids(selector().choose(SelectionQuery(TEXT, "", request)))[0] == TONGUE.id


def test_a_model_with_other_labels_is_no_fallback_within_its_expert() -> None:
    assert ids(selector().choose(SelectionQuery(OBJECTS, "find the faces"))) == [FACES.id, DULL.id]


def test_a_model_that_shares_words_with_the_request_stays_a_fallback() -> None:
    assert ids(selector().choose(SelectionQuery(OBJECTS, "find the faces, faces of people"))) == [
        FACES.id,
        PEOPLE.id,
        DULL.id,
    ]


def test_models_that_make_things_stand_in_for_one_another() -> None:
    assert ids(selector().choose(SelectionQuery("text-to-image", "an oil painting"))) == ["oil", "photo"]


def test_outside_the_house_comes_after_all_inside() -> None:
    choice = selector().choose(SelectionQuery(TEXT, allows_external=True))
    assert ids(choice) == [MOOD.id, TONGUE.id, CLOUD.id]


def test_the_policy_hides_what_is_outside() -> None:
    assert CLOUD.id not in ids(selector().choose(SelectionQuery(TEXT, "is it happy")))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (SelectionQuery(TEXT, mode=Mode.REMOTE, allows_external=True), [CLOUD.id]),
        (SelectionQuery(TEXT, mode=Mode.LOCAL, allows_external=True), [MOOD.id, TONGUE.id]),
        (SelectionQuery(TEXT, model="langid"), [TONGUE.id]),
        (SelectionQuery(TEXT, model="langid", revision="1"), [TONGUE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(licenses=frozenset({"bsd"}))), [TONGUE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(max_parameter_count=10)), [TONGUE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(allowed=frozenset({"vader"}))), [MOOD.id]),
        (SelectionQuery(TEXT, constraints=Constraints(languages=frozenset({"de"}))), [MOOD.id, TONGUE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu"})), allows_external=True), [CLOUD.id]),
        (
            SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu-central-1"})), allows_external=True),
            [CLOUD.id],
        ),
        (SelectionQuery(TEXT, limit=1), [MOOD.id]),
        (SelectionQuery(TEXT, avoid=[Avoid(model="vader", expert="lite")]), [TONGUE.id, MOOD.id]),
        (SelectionQuery(TEXT, avoid=[Avoid(expert="lite", address="lite:9")]), [MOOD.id, TONGUE.id]),
    ],
)
def test_only_what_is_allowed_is_chosen(wanted: SelectionQuery, expected: Sequence[str]) -> None:
    assert ids(selector().choose(wanted)) == expected


def test_what_the_house_runs_itself_stands_where_the_house_says_and_nobody_else_does() -> None:
    catalog, standard = Catalog(standard_tasks()), standard_tasks()
    elsewhere = card("elsewhere", TEXT, region="us-east-1")
    silent = card("silent", TEXT, location=MODEL_LOCATION_EXTERNAL)
    catalog.listed("lite:1")
    catalog.record_reply("lite:1", DescribeResponse(expert="lite", models=[MOOD, elsewhere, silent]))
    wanted = SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"ch"})), allows_external=True)
    assert ids(Selector(catalog, standard, Mode.HYBRID, "ch-dk-2").choose(wanted)) == [MOOD.id]
    with pytest.raises(NotFound, match="region ch"):
        Selector(catalog, standard, Mode.HYBRID).choose(wanted)


def test_replicas_in_several_regions_are_in_none() -> None:
    standard = standard_tasks()
    catalog = Catalog(standard)
    for region in ("eu-west-1", "us-east-1"):
        catalog.listed(f"{region}:1")
        catalog.record_reply(f"{region}:1", DescribeResponse(expert="cloud", models=[card("m", TEXT, region=region)]))
    with pytest.raises(NotFound):
        Selector(catalog, standard, Mode.HYBRID).choose(
            SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu"})))
        )


def test_a_replica_to_avoid_is_not_an_endpoint() -> None:
    standard = standard_tasks()
    catalog = Catalog(standard)
    for address in ("one:1", "two:1"):
        catalog.listed(address)
        catalog.record_reply(address, DescribeResponse(expert="lite", models=[MOOD]))
    choosing = Selector(catalog, standard, Mode.HYBRID)
    one = choosing.choose(SelectionQuery(TEXT, avoid=[Avoid(address="one:1")])).chosen[0]
    both = choosing.choose(SelectionQuery(TEXT, avoid=[Avoid(address="one:1"), Avoid(address="two:1")])).chosen[0]
    assert [replica.address for replica in one.replicas] == ["two:1"]
    assert [replica.address for replica in both.replicas] == ["one:1", "two:1"]
    assert "has been failing" in both.reason


REFUSED: dict[str, tuple[SelectionQuery, type[ServiceError], str, str, str]] = {
    "nobody, with where to get it": (
        SelectionQuery("depth-estimation"),
        NotFound,
        "TASK",
        "depth-estimation",
        "vision",
    ),
    "a misspelt task": (SelectionQuery("object-detecton"), NotFound, "TASK", "object-detecton", "use object-detection"),
    "a task nobody knows": (SelectionQuery("zzz"), NotFound, "TASK", "there is no task zzz", "hugginggpt tasks"),
    "all models failed": (SelectionQuery("summarization"), NotFound, "TASK", "file is gone", "log"),
    "a pinned failed model": (SelectionQuery("summarization", model="broken"), NotFound, "TASK", "file is gone", "log"),
    "an unknown pin": (SelectionQuery(TEXT, model="vadr"), NotFound, "MODEL", "vadr", "pin vader"),
    "another commit": (
        SelectionQuery(TEXT, model="vader", revision="9"),
        NotFound,
        "MODEL",
        "at revision 1, not 9",
        "revision",
    ),
    "constraints": (
        SelectionQuery(TEXT, constraints=Constraints(licenses=frozenset({"gpl"}))),
        *(NotFound, "MODEL", "licence gpl", "loosen"),
    ),
    "a region that nobody names": (
        SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu-c"})), allows_external=True),
        *(NotFound, "MODEL", "region eu-c", "loosen"),
    ),
    "policy": (SelectionQuery("text-to-video"), FailedPrecondition, "POLICY", "policy is local", "open"),
    "a pin outside": (SelectionQuery(TEXT, model=CLOUD.id), FailedPrecondition, "POLICY", "policy is local", "open"),
    "a model that does not say that it is inside": (
        SelectionQuery("automatic-speech-recognition"),
        *(FailedPrecondition, "POLICY", "policy is local", "open"),
    ),
    "mode remote": (
        SelectionQuery(OBJECTS, mode=Mode.REMOTE, allows_external=True),
        FailedPrecondition,
        "POLICY",
        "internal",
        "hybrid",
    ),
    "mode local": (
        SelectionQuery("text-to-video", mode=Mode.LOCAL, allows_external=True),
        *(FailedPrecondition, "POLICY", "external", "hybrid"),
    ),
    "no task": (SelectionQuery(""), InvalidRequest, "INVALID", "task", "name"),
    "a negative limit": (SelectionQuery(TEXT, limit=-1), InvalidRequest, "INVALID", "limit", ""),
}


@pytest.mark.parametrize(("wanted", "kind", "reason", "message", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_cause_and_remedy(
    wanted: SelectionQuery, kind: type[ServiceError], reason: str, message: str, remedy: str
) -> None:
    with pytest.raises(kind) as refused:
        selector().choose(wanted)
    assert refused.value.reason == reason
    assert message in refused.value.message
    assert remedy in refused.value.remedy


def test_the_deployment_s_mode_holds_where_the_request_names_none() -> None:
    assert ids(selector(Mode.REMOTE).choose(SelectionQuery(TEXT, allows_external=True))) == [CLOUD.id]


def test_the_decision_says_why_and_how_sure() -> None:
    sure = selector().choose(SelectionQuery(TEXT, "tell me whether it sounds happy"))
    unsure = selector().choose(SelectionQuery(TEXT, "do it"))
    assert "vader" in sure.reason
    assert "“happy”" in sure.reason
    assert math.isclose(sure.confidence, 1.0)
    assert 0.5 <= unsure.confidence < sure.confidence


@pytest.mark.parametrize(
    ("parameters", "tags"),
    [
        ({"language": "de-AT"}, {"de"}),
        ({"source_language": "en", "target_language": "FR"}, {"en", "fr"}),
        ({"language": "German", "top_k": 3}, set()),
        ({"language": 3}, set()),
        ({}, set()),
    ],
)
def test_languages_are_found_among_the_parameters(parameters: dict[str, object], tags: set[str]) -> None:
    assert languages_of(parameters) == tags
