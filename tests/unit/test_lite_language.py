"""Text engines of the lite expert: sentences, sentiment, languages, entities, summaries and answers."""

import random

import pytest

from experts.host.handler import Inputs, Outputs
from experts.lite.text_processing import MAX_CHARACTERS, split_sentences, split_words
from services.common.errors import InvalidRequest
from tests.support.samples import infer, load_lite_model, run_lite_task

ARTICLE = (
    "The Apollo program was the third United States human spaceflight program carried out by NASA, which succeeded in "
    "landing the first humans on the Moon from 1968 to 1972. It was first conceived in 1960 during President Dwight "
    "Eisenhower's administration as a three-person spacecraft to follow Project Mercury. Apollo was later given "
    "the goal of landing a man on the Moon, which President John Kennedy set before Congress on May 25, 1961. "
    "The goal was accomplished on the Apollo 11 mission when astronauts Neil Armstrong and Buzz Aldrin landed on July "
    "20, 1969, and walked on the lunar surface. Michael Collins remained in lunar orbit. Five subsequent Apollo "
    "missions also landed astronauts on the Moon, the last in December 1972. In these six spaceflights, twelve people "
    "walked on the Moon. The program encountered a setback in 1967 when a cabin fire killed the crew of Apollo 1. "
    "After the first Moon landing, budget cuts led to the cancellation of three planned missions."
)

TEXT_MODELS = [
    ("text-classification", "vaderSentiment"),
    ("text-classification", "py3langid"),
    ("token-classification", "lite/entity-rules"),
    ("summarization", "lite/textrank"),
]

# ---------------------------------------------------------------- sentences


def test_split_sentences_ends_at_full_stops_but_not_at_abbreviations() -> None:
    text = (
        'Dr. Smith arrived at 3.30 p.m. He met Mr. J. R. Jones of Acme Inc. in the U.S. embassy. "Are you sure?" asked '
        "the man. Yes! It cost $3.50, i.e. too much.\n\nA heading\n\n- first thing\n- second thing"
    )
    assert [sentence.text for sentence in split_sentences(text)] == [
        "Dr. Smith arrived at 3.30 p.m.",
        "He met Mr. J. R. Jones of Acme Inc. in the U.S. embassy.",
        '"Are you sure?" asked the man.',
        "Yes!",
        "It cost $3.50, i.e. too much.",
        "A heading",
        "- first thing",
        "- second thing",
    ]
    assert all(text[sentence.start : sentence.end] == sentence.text for sentence in split_sentences(text))


def test_line_break_does_not_end_a_sentence() -> None:
    assert [sentence.text for sentence in split_sentences("We are so happy\nto see you! Bye.")] == [
        "We are so happy\nto see you!",
        "Bye.",
    ]


# ---------------------------------------------------------------- classification


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("We are so happy\nto see you!\nHave a wonderful day.", "positive"),
        ("I love it, the best phone I ever had!", "positive"),
        ("This is terrible, I hate it.", "negative"),
        ("I am very sad and disappointed.", "negative"),
        ("The food was not good.", "negative"),
        ("The table is three metres long.", "neutral"),
    ],
)
def test_sentiment_label_matches_the_text(text: str, label: str) -> None:
    outputs = run_lite_task("text-classification", "vaderSentiment", {"text": text})
    assert outputs["text"] == label
    assert outputs["labels"][0]["label"] == label


def test_sentiment_scores_sum_to_one_best_first() -> None:
    labels = run_lite_task("text-classification", "vaderSentiment", {"text": "What a lovely day!"})["labels"]
    scores = [label["score"] for label in labels]
    assert {label["label"] for label in labels} == {"positive", "neutral", "negative"}
    assert sum(scores) == pytest.approx(1, abs=0.001)
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.5


def test_text_without_lexicon_words_is_neutral_with_half_score() -> None:
    labels = run_lite_task("text-classification", "vaderSentiment", {"text": "Two tables, four chairs."})["labels"]
    assert labels[0] == {"label": "neutral", "score": 0.5}


def test_sentences_that_contradict_each_other_are_no_clear_sentiment() -> None:
    text = {"text": "I love the great screen. I hate the terrible battery."}
    labels = run_lite_task("text-classification", "vaderSentiment", text)["labels"]
    assert labels[0]["score"] < 0.6


@pytest.mark.parametrize(
    "text",
    [
        "Oh great, another update that deletes all my photos. Just what I needed. Thanks a lot, geniuses.",
        "Your blood test showed no problems. Please come for a check in six months. Kind regards",
    ],
)
def test_few_polar_words_are_no_clear_sentiment(text: str) -> None:
    assert run_lite_task("text-classification", "vaderSentiment", {"text": text})["labels"][0]["score"] < 0.6


def test_neutral_sentences_do_not_hide_a_complaint() -> None:
    text = {"text": "I ordered it on 2 May. It came on Monday. It is blue. I am very sad and disappointed."}
    assert run_lite_task("text-classification", "vaderSentiment", text)["labels"][0]["label"] == "negative"


def test_sentiment_of_non_english_text_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="the text is in German") as caught:
        run_lite_task(
            "text-classification", "vaderSentiment", {"text": "Das war eine schöne Party, die mir gut gefiel!"}
        )
    assert caught.value.port == "text"


def test_top_k_limits_the_labels() -> None:
    labels = run_lite_task("text-classification", "vaderSentiment", {"text": "Great!"}, '{"top_k":1}')["labels"]
    assert [label["label"] for label in labels] == ["positive"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("We are so happy to see you! Have a wonderful day.", "English (en)"),
        ("Bonjour tout le monde, comment allez-vous aujourd'hui ?", "French (fr)"),
        ("Ich möchte heute Abend gern ins Kino gehen.", "German (de)"),
        ("El perro come en la cocina todos los días.", "Spanish (es)"),
        ("今日はとても良い天気ですね。", "Japanese (ja)"),
        ("Сегодня очень хорошая погода, мы идём гулять.", "Russian (ru)"),
        ("ok", "undetermined (und)"),
    ],
)
def test_language_label_has_name_and_tag(text: str, label: str) -> None:
    assert run_lite_task("text-classification", "py3langid", {"text": text})["text"] == label


# ---------------------------------------------------------------- entities


def test_numbers_of_bills_and_accounts_are_no_dates() -> None:
    text = {"text": "Invoice No. 2087 of 12.03.2025, sort code 20-45-88"}
    entities = run_lite_task("token-classification", "lite/entity-rules", text)["entities"]
    assert [one["text"] for one in entities if one["entity"] == "DATE"] == ["12.03.2025"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We met Dr. Jane Smith in Paris.", [("PER", "Jane Smith"), ("LOC", "Paris")]),
        ("Neil Armstrong worked for NASA.", [("PER", "Neil Armstrong"), ("ORG", "NASA")]),
        (
            "Acme Widgets Inc. and the University of Leipzig",
            [("ORG", "Acme Widgets Inc."), ("ORG", "University of Leipzig")],
        ),
        ("on 12 March 2024 at 3.30 p.m.", [("DATE", "12 March 2024"), ("TIME", "3.30 p.m.")]),
        ("Doors open at nine o'clock", [("TIME", "nine o'clock")]),
        ("half past ten, quarter to 5, noon", [("TIME", "half past ten"), ("TIME", "quarter to 5"), ("TIME", "noon")]),
        ("um 14 Uhr und 9h30, from ten to five people", [("TIME", "14 Uhr"), ("TIME", "9h30")]),
        (
            "Present were Julia Brandt, Jorun Reed and Oxana Yilkov.",
            [("PER", "Julia Brandt"), ("PER", "Jorun Reed"), ("PER", "Oxana Yilkov")],
        ),
        (
            "Attendees: Thandiwe Mokoena, Kit and Bjarne Hvid\nTakudzwa Moyo sent his apologies.",
            [("PER", "Thandiwe Mokoena"), ("PER", "Kit"), ("PER", "Bjarne Hvid"), ("PER", "Takudzwa Moyo")],
        ),
        (
            "Later we met Xiulan Tran-Bell.\n\nKind regards,\nNkechi Obi",
            [("PER", "Xiulan Tran-Bell"), ("PER", "Nkechi Obi")],
        ),
        ("It came from Bramwell Tools in Ipswich", [("ORG", "Bramwell Tools"), ("LOC", "Ipswich")]),
        ("Payment Terms apply. The Summer Fair is on. We met Breeze Lettings.", []),
        ("Die Zahlung ist mit dem Vertrag fällig, und Ihre Miete steigt.", []),
        ("In October 63 parcels came, and from 12 to 14 June none.", [("DATE", "12 to 14 June")]),
        ("Call 0161 555 0199, or 020 7946 0958.", [("PHONE", "0161 555 0199"), ("PHONE", "020 7946 0958")]),
        ("We met in Room 204.", []),
        (
            "2024-03-12, 11/04/2024 and May 3rd, 1999",
            [("DATE", d) for d in ("2024-03-12", "11/04/2024", "May 3rd, 1999")],
        ),
        (
            "$1,250.00 or 1.150 EUR or 5 million euros",
            [("MONEY", m) for m in ("$1,250.00", "1.150 EUR", "5 million euros")],
        ),
        ("45% of it", [("PERCENT", "45%")]),
        ("mail jane@acme.example.com.", [("EMAIL", "jane@acme.example.com")]),
        ("see https://acme.example.com/x.", [("URL", "https://acme.example.com/x")]),
        ("call +1 555 123 4567 now", [("PHONE", "+1 555 123 4567")]),
        ("221B Baker Street, London", [("ADDRESS", "221B Baker Street, London")]),
        ("Hauptstraße 12, 10115 Berlin", [("ADDRESS", "Hauptstraße 12, 10115 Berlin")]),
        ("John F. Kennedy", [("PER", "John F. Kennedy")]),
        ("at 221B Baker Street, London NW1 6XE.", [("ADDRESS", "221B Baker Street, London NW1 6XE")]),
        ("Bill to\nJane Porter\n8 Castle Road\nYork", [("PER", "Jane Porter"), ("ADDRESS", "8 Castle Road")]),
        ("27 Mill Lane, Leeds\nInvoice number: 7", [("ADDRESS", "27 Mill Lane, Leeds")]),
        ("Jane Porter\tDue date:", [("PER", "Jane Porter")]),
        ("Jane Porter Due date: today", [("PER", "Jane Porter")]),
        ("Dear Bill, pay 5\nEUR 7.00", [("PER", "Bill"), ("MONEY", "EUR 7.00")]),
        ("paid in Full from Invoice to Receipt in May", []),
        ("IBAN DE89 3704 0044 0532 0130 00", []),
        ("nothing of the kind", []),
    ],
)
def test_entities_are_found_at_their_positions(text: str, expected: list[tuple[str, str]]) -> None:
    outputs = run_lite_task("token-classification", "lite/entity-rules", {"text": text})
    found = outputs["entities"]
    assert [(entity["entity"], entity["text"]) for entity in found] == expected
    assert all(text[entity["start"] : entity["end"]] == entity["text"] for entity in found)
    assert all(0 < entity["score"] <= 1 for entity in found)


def test_entity_text_has_one_line_per_entity() -> None:
    outputs = run_lite_task("token-classification", "lite/entity-rules", {"text": "Anna Bell paid $5."})
    assert outputs["text"] == "PER: Anna Bell\nMONEY: $5"


# ---------------------------------------------------------------- summaries


def summarize(text: str, parameters_json: str = "") -> str:
    return str(run_lite_task("summarization", "lite/textrank", {"text": text}, parameters_json)["text"])


def test_summary_contains_sentences_of_the_text_in_order() -> None:
    found = [sentence.text for sentence in split_sentences(summarize(ARTICLE))]
    own = [sentence.text for sentence in split_sentences(ARTICLE)]
    assert 0 < len(found) < len(own) / 2
    assert found == [sentence for sentence in own if sentence in found]
    assert own[0] in found


def test_summary_of_a_short_article_has_more_than_its_first_sentence() -> None:
    text = (
        "The old stone bridge was built in 1742 and carried the coach road for more than a century. "
        "In March a flood damaged two arches of the bridge, and the council closed it to all traffic. "
        "The repairs of the bridge will cost two million pounds and take more than fourteen months. "
        "Until then drivers must use the motorway bridge, which is twelve kilometres away. "
        "Shop owners fear that visitors will stay away from the old quarter of the town."
    )
    assert len(split_sentences(summarize(text))) == 2


def test_summary_respects_min_and_max_length() -> None:
    assert len(split_words(summarize(ARTICLE, '{"max_length":25}'))) <= 25
    assert 60 <= len(split_words(summarize(ARTICLE, '{"min_length":60,"max_length":100}'))) <= 100
    assert len(split_words(summarize(ARTICLE, '{"max_length":5}'))) <= 5


def test_summary_omits_repeated_sentences() -> None:
    twice = "The bridge was closed after the storm. " * 6 + "The ferry carries people over the river instead."
    assert summarize(twice).count("bridge") == 1


LETTER = (
    "Harbour Museum\n14 Quay Street, Bristol\n\n3 June 2024\n\nDear Ms. Clarke,\n"
    "Thank you for your letter of 20 May. Our curator believes that twelve of the models were built before 1850. "
    "The museum will pay for transport.\n\nPage 2\n"
    "The insurance covers a value of $25,000. Our driver will collect the models on 1 July.\n\n- 3 -\n\n"
    "Yours sincerely,\n\nPeter Lowell\n\nDirector"
)
MAIL = (
    "From: Anna Weber <anna@example.com>\nTo: Team\nSubject: Delay\n\nHi all,\n\n"
    "The sensors will arrive three weeks late. We have to move the launch to 22 July. "
    "Sales should tell the customers who already ordered.\n\nBest regards,\nAnna\n"
    "--\nAnna Weber\nTel. +49 30 1234567"
)


@pytest.mark.parametrize(
    ("text", "boilerplate"),
    [
        (LETTER, ("Bristol", "June 2024", "Dear", "Page", "- 3", "sincerely", "Lowell", "Director")),
        (MAIL, ("From", "Subject", "Hi all", "regards", "Anna", "Tel")),
    ],
)
def test_summary_omits_headers_greetings_and_page_numbers(text: str, boilerplate: tuple[str, ...]) -> None:
    text = summarize(text, '{"min_length":100,"max_length":500}')
    assert not [word for word in boilerplate if word in text]
    assert text.endswith(".")
    assert text.count(".") >= 3


@pytest.mark.parametrize("text", ["Dear Anna,", "42", "Milk 2.40\nBread 3.10\nTotal 5.50", "no end\nin sight\nof this"])
def test_text_without_sentences_is_returned_unchanged(text: str) -> None:
    assert summarize(text) == " ".join(text.split())


def test_short_text_is_its_own_summary() -> None:
    assert summarize("Hello there.") == "Hello there."


# ---------------------------------------------------------------- answers


def ask_question(question: str, context: str = ARTICLE) -> tuple[str, dict[str, object]]:
    outputs = run_lite_task("question-answering", "lite/extractive-qa", {"question": question, "context": context})
    return outputs["text"], outputs["details"]


@pytest.mark.parametrize(
    ("question", "context", "expected"),
    [
        ("Who invented the telephone?", "The telephone was invented by Bell in 1876 in Boston.", "Bell"),
        ("When was the telephone invented?", "The telephone was invented by Bell in 1876 in Boston.", "1876"),
        ("Where was Bell born?", "Bell was born in Edinburgh, Scotland, on March 3, 1847.", "Edinburgh"),
        ("How tall is the Eiffel Tower?", "The Eiffel Tower is 330 metres tall.", "330 metres"),
        ("How much is a ticket?", "The shop opens at 9. A ticket costs $25.", "$25"),
        ("What is photosynthesis?", "Photosynthesis is the way plants use light.", "the way plants use light"),
        ("What is the capital of France?", "Paris is the capital of France.", "Paris"),
        ("Why was it closed?", "It was closed because it rained.", "because it rained"),
        ("How many people walked on the Moon?", ARTICLE, "twelve people"),
        ("When did Apollo 11 land?", ARTICLE, "July 20, 1969"),
    ],
)
def test_question_is_answered_with_span_and_score(question: str, context: str, expected: str) -> None:
    text, details = ask_question(question, context)
    assert text == expected
    assert context[int(str(details["start"])) : int(str(details["end"]))] == details["answer"] == expected
    assert 0.2 < float(str(details["score"])) <= 1


def test_answer_is_the_date_after_the_question_word() -> None:
    assert (
        ask_question("When does it close?", "The show opens on 15 July and closes on 30 September.")[0]
        == "30 September"
    )


@pytest.mark.parametrize(
    "question",
    [
        "What colour is the queen's bicycle?",
        "Who was the president of Russia?",
        "How much did the Apollo program cost?",
    ],
)
def test_unanswerable_question_has_no_answer(question: str) -> None:
    text, details = ask_question(question)
    assert text == f"I found no answer to “{question}”."
    assert details["answer"] == ""
    assert details["score"] == 0.0


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(("task", "model"), TEXT_MODELS)
@pytest.mark.parametrize(
    ("text", "message"), [("", "empty"), (" \n\t ", "empty"), ("x" * (MAX_CHARACTERS + 1), "at most")]
)
def test_empty_or_too_long_text_is_rejected(task: str, model: str, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        infer(load_lite_model(task, model), {"text": text})
    assert caught.value.port == "text"
    assert caught.value.remedy


@pytest.mark.parametrize(("port", "other"), [("question", "context"), ("context", "question")])
def test_empty_question_or_context_is_rejected(port: str, other: str) -> None:
    with pytest.raises(InvalidRequest, match="empty") as caught:
        infer(load_lite_model("question-answering", "lite/extractive-qa"), {port: " ", other: "What is it?"})
    assert caught.value.port == port


def hostile_texts() -> list[str]:
    generator = random.Random(3)
    size = 100_000
    return [
        "A" * size,
        "a@" * (size // 2),
        "." * size + "x",
        "Aa " * (size // 3),
        "12 34 " * (size // 6),
        "1 May " * (size // 6),
        "Due Date " * (size // 9),
        "--\n" * (size // 3),
        "A" + " " * size + "b",
        "\n" * size + "a",
        "but good " * (size // 9),
        "Present: " * (size // 9),
        "Guests: " + "Kit, " * (size // 5),
        "then Bo Li " * (size // 11),
        "\0\x07\ufffd" * (size // 3),
        "𝕏👩‍👩‍👧‍👦" * (size // 10),
        "".join(
            chr(generator.choice((generator.randrange(32, 127), generator.randrange(160, 0x2FFF)))) for _ in range(size)
        ),
    ]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("task", "model"), TEXT_MODELS)
def test_hostile_texts_are_processed_in_time(task: str, model: str) -> None:
    for text in hostile_texts():
        outputs = infer(load_lite_model(task, model), {"text": text}, {"top_k": 5})
        assert isinstance(outputs["text"], str)


@pytest.mark.timeout(60)
def test_hostile_texts_are_accepted_as_context_and_question() -> None:
    handler = load_lite_model("question-answering", "lite/extractive-qa")

    def infer_answer(inputs: Inputs) -> Outputs:
        return infer(handler, inputs)

    for text in hostile_texts():
        assert infer_answer({"question": "When is May 12 A?", "context": text})["text"]
        assert infer_answer({"question": text, "context": ARTICLE})["text"]
