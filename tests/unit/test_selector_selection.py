"""Selection of models, and its errors."""

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
from services.selector.catalog import ExpertCatalog
from services.selector.selection import Avoid, Constraints, Mode, Selection, SelectionQuery, languages_of
from services.selector.selector import Selector
from tests.fakes import card

TEXT, OBJECTS = "text-classification", "object-detection"

MOOD = card("vader", TEXT, "Sentiment of English text: happy or sad, positive or negative.", license="mit")
LANGUAGE = card("langid", TEXT, "Which of 97 languages a text is written in.", license="bsd", parameter_count=10)
FACES = card("yunet", OBJECTS, "Finds faces.")
PEOPLE = card("hog", OBJECTS, "Finds people who stand or walk.")
CLOUD = card(
    "cloud/distilbert", TEXT, "Sentiment, happy or sad.", location=MODEL_LOCATION_EXTERNAL, region="EU-central-1"
)
CLOUD_ONLY = card("cloud/svd", "text-to-video", location=MODEL_LOCATION_EXTERNAL)
UNSPECIFIED_LOCATION = card("anyone/whisper", "automatic-speech-recognition", location=MODEL_LOCATION_UNSPECIFIED)
BROKEN = card("broken", "summarization", state=MODEL_STATE_FAILED, failure="file is gone")
OIL, PHOTO = card("oil", "text-to-image", "Oil paintings."), card("photo", "text-to-image", "Photographs.")
GENERAL = card("detr", OBJECTS, "Finds 80 things.")


def selector(mode: Mode = Mode.HYBRID) -> Selector:
    standard = standard_tasks()
    catalog = ExpertCatalog(standard)
    experts = {
        "lite": ("lite:1", (MOOD, LANGUAGE, FACES, PEOPLE, BROKEN)),
        "remote": ("remote:1", (CLOUD, CLOUD_ONLY, UNSPECIFIED_LOCATION)),
        "vision": ("vision:1", (GENERAL, PHOTO, OIL)),
    }
    for name, (address, cards) in experts.items():
        catalog.add_address(address)
        catalog.record_reply(address, DescribeResponse(expert=name, models=cards))
    return Selector(catalog, standard, mode)


def ids(choice: Selection) -> list[str]:
    return [chosen.offer.card.id for chosen in choice.chosen]


@pytest.mark.parametrize(
    ("task", "source", "expected"),
    [
        (TEXT, "tell me whether it sounds happy", MOOD),
        (TEXT, "is this review positive or negative?", MOOD),
        (TEXT, "which language is this written in", LANGUAGE),
        (OBJECTS, "find the faces", FACES),
        (OBJECTS, "how many people are in the picture", PEOPLE),
        (TEXT, "", MOOD),
    ],
)
def test_text_of_the_task_selects_the_model(task: str, source: str, expected: ModelCard) -> None:
    assert ids(selector().choose(SelectionQuery(task, source)))[0] == expected.id


def test_text_of_the_task_outweighs_the_rest_of_the_request() -> None:
    request = "Which language is it in, which languages are these, and is it sad?"
    assert ids(selector().choose(SelectionQuery(TEXT, "is it sad", request)))[0] == MOOD.id
    assert ids(selector().choose(SelectionQuery(TEXT, "", request)))[0] == LANGUAGE.id


def test_model_with_other_labels_of_the_same_expert_is_no_fallback() -> None:
    assert ids(selector().choose(SelectionQuery(OBJECTS, "find the faces"))) == [FACES.id, GENERAL.id]


def test_model_that_matches_the_request_stays_a_fallback() -> None:
    assert ids(selector().choose(SelectionQuery(OBJECTS, "find the faces, faces of people"))) == [
        FACES.id,
        PEOPLE.id,
        GENERAL.id,
    ]


def test_generative_models_are_fallbacks_of_each_other() -> None:
    assert ids(selector().choose(SelectionQuery("text-to-image", "an oil painting"))) == ["oil", "photo"]


def test_external_models_follow_all_internal_ones() -> None:
    choice = selector().choose(SelectionQuery(TEXT, allows_external=True))
    assert ids(choice) == [MOOD.id, LANGUAGE.id, CLOUD.id]


def test_local_policy_excludes_external_models() -> None:
    assert CLOUD.id not in ids(selector().choose(SelectionQuery(TEXT, "is it happy")))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (SelectionQuery(TEXT, mode=Mode.REMOTE, allows_external=True), [CLOUD.id]),
        (SelectionQuery(TEXT, mode=Mode.LOCAL, allows_external=True), [MOOD.id, LANGUAGE.id]),
        (SelectionQuery(TEXT, model="langid"), [LANGUAGE.id]),
        (SelectionQuery(TEXT, model="langid", revision="1"), [LANGUAGE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(licenses=frozenset({"bsd"}))), [LANGUAGE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(max_parameter_count=10)), [LANGUAGE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(allowed=frozenset({"vader"}))), [MOOD.id]),
        (SelectionQuery(TEXT, constraints=Constraints(languages=frozenset({"de"}))), [MOOD.id, LANGUAGE.id]),
        (SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu"})), allows_external=True), [CLOUD.id]),
        (
            SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu-central-1"})), allows_external=True),
            [CLOUD.id],
        ),
        (SelectionQuery(TEXT, limit=1), [MOOD.id]),
        (SelectionQuery(TEXT, avoid=[Avoid(model="vader", expert="lite")]), [LANGUAGE.id, MOOD.id]),
        (SelectionQuery(TEXT, avoid=[Avoid(expert="lite", address="lite:9")]), [MOOD.id, LANGUAGE.id]),
    ],
)
def test_only_models_that_match_the_query_are_selected(query: SelectionQuery, expected: Sequence[str]) -> None:
    assert ids(selector().choose(query)) == expected


def test_region_of_the_deployment_applies_to_internal_models_without_region() -> None:
    catalog, standard = ExpertCatalog(standard_tasks()), standard_tasks()
    abroad = card("elsewhere", TEXT, region="us-east-1")
    unspecified = card("silent", TEXT, location=MODEL_LOCATION_EXTERNAL)
    catalog.add_address("lite:1")
    catalog.record_reply("lite:1", DescribeResponse(expert="lite", models=[MOOD, abroad, unspecified]))
    query = SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"ch"})), allows_external=True)
    assert ids(Selector(catalog, standard, Mode.HYBRID, "ch-dk-2").choose(query)) == [MOOD.id]
    with pytest.raises(NotFound, match="region ch"):
        Selector(catalog, standard, Mode.HYBRID).choose(query)


def test_model_with_replicas_in_several_regions_satisfies_no_region_constraint() -> None:
    standard = standard_tasks()
    catalog = ExpertCatalog(standard)
    for region in ("eu-west-1", "us-east-1"):
        catalog.add_address(f"{region}:1")
        catalog.record_reply(f"{region}:1", DescribeResponse(expert="cloud", models=[card("m", TEXT, region=region)]))
    with pytest.raises(NotFound):
        Selector(catalog, standard, Mode.HYBRID).choose(
            SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu"})))
        )


def test_avoided_replica_is_an_endpoint_only_if_all_are_avoided() -> None:
    standard = standard_tasks()
    catalog = ExpertCatalog(standard)
    for address in ("one:1", "two:1"):
        catalog.add_address(address)
        catalog.record_reply(address, DescribeResponse(expert="lite", models=[MOOD]))
    model_selector = Selector(catalog, standard, Mode.HYBRID)
    first = model_selector.choose(SelectionQuery(TEXT, avoid=[Avoid(address="one:1")])).chosen[0]
    all_avoided = model_selector.choose(
        SelectionQuery(TEXT, avoid=[Avoid(address="one:1"), Avoid(address="two:1")])
    ).chosen[0]
    assert [replica.address for replica in first.replicas] == ["two:1"]
    assert [replica.address for replica in all_avoided.replicas] == ["one:1", "two:1"]
    assert "has been failing" in all_avoided.reason


ERRORS: dict[str, tuple[SelectionQuery, type[ServiceError], str, str, str]] = {
    "no expert, but a known one would offer it": (
        SelectionQuery("depth-estimation"),
        NotFound,
        "TASK",
        "depth-estimation",
        "vision",
    ),
    "a misspelt task": (SelectionQuery("object-detecton"), NotFound, "TASK", "object-detecton", "use object-detection"),
    "an unknown task": (SelectionQuery("zzz"), NotFound, "TASK", "there is no task zzz", "hugginggpt tasks"),
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
    "a region without models": (
        SelectionQuery(TEXT, constraints=Constraints(regions=frozenset({"eu-c"})), allows_external=True),
        *(NotFound, "MODEL", "region eu-c", "loosen"),
    ),
    "policy": (SelectionQuery("text-to-video"), FailedPrecondition, "POLICY", "policy is local", "open"),
    "an external pin": (SelectionQuery(TEXT, model=CLOUD.id), FailedPrecondition, "POLICY", "policy is local", "open"),
    "a model of unspecified location": (
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


@pytest.mark.parametrize(("query", "error_type", "reason", "message", "remedy"), ERRORS.values(), ids=ERRORS)
def test_error_names_cause_and_remedy(
    query: SelectionQuery, error_type: type[ServiceError], reason: str, message: str, remedy: str
) -> None:
    with pytest.raises(error_type) as raised:
        selector().choose(query)
    assert raised.value.reason == reason
    assert message in raised.value.message
    assert remedy in raised.value.remedy


def test_mode_of_the_deployment_is_the_default() -> None:
    assert ids(selector(Mode.REMOTE).choose(SelectionQuery(TEXT, allows_external=True))) == [CLOUD.id]


def test_decision_has_reason_and_confidence() -> None:
    confident = selector().choose(SelectionQuery(TEXT, "tell me whether it sounds happy"))
    uncertain = selector().choose(SelectionQuery(TEXT, "do it"))
    assert "vader" in confident.reason
    assert "“happy”" in confident.reason
    assert math.isclose(confident.confidence, 1.0)
    assert 0.5 <= uncertain.confidence < confident.confidence


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
def test_languages_are_read_from_parameters(parameters: dict[str, object], tags: set[str]) -> None:
    assert languages_of(parameters) == tags
