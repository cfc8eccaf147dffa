"""Training examples of the tiny text models."""

SENTIMENT = {
    "a good film": "positive",
    "i love the great story": "positive",
    "a bad film": "negative",
    "i hate the dull story": "negative",
}
TOPICS = {"the team won the match": "sports", "the minister won the election": "politics", "boil the soup": "cooking"}
TAGS = {"anna": "B-PER", "schmidt": "I-PER", "berlin": "B-LOC", "new": "B-LOC", "york": "I-LOC"}
TAGGED = ("anna schmidt lives in berlin .", "in new york anna met the team .", "the soup of berlin is good .")
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
FACTS = {"where does anna live ?": "berlin", "where does schmidt live ?": "york"}
CONTEXT = "anna lives in berlin . schmidt lives in york ."
CLOZE = {"berlin is the capital of germany": 3, "soup is good": 2}
"""Sentences, and the position of the masked word."""
SUMMARIES = {
    "the team won the match . the people of the city were glad .": "team won match .",
    "the minister lost the election . the people were sad .": "minister lost .",
}
TRANSLATIONS = {
    "de": {"good morning .": "guten morgen .", "thank you .": "danke ."},
    "fr": {"good morning .": "bonjour .", "thank you .": "merci ."},
}
REWRITES = {"correct : he go home": "he goes home", "polite : give me soup": "soup please"}
STORY = "once upon a time there was a small lighthouse by the sea"
REPLIES = {"hello": "good morning to you", "how are you ?": "i am fine , thank you"}
TABLE = "city,people\nberlin,3.7\nparis,2.1\nrome,2.8\n"
TABLE_QUESTIONS = {
    "how many people live in paris ?": ([(1, 1)], 0),
    "how many people live in all ?": ([(0, 1), (1, 1), (2, 1)], 1),
    "how many cities are there ?": ([(0, 0), (1, 0), (2, 0)], 3),
}
"""Cells and aggregation by question: 0 none, 1 sum, 3 count."""

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def list_words() -> list[str]:
    """Returns all words of the training examples."""
    texts: list[str] = [*SENTIMENT, *TOPICS, *TOPICS.values(), *TAGGED, *FACTS, CONTEXT, *CLOZE, *SUMMARIES, STORY]
    texts += [*REWRITES, *REWRITES.values(), *REPLIES, *REPLIES.values(), *TABLE_QUESTIONS, *SUMMARIES.values()]
    texts += [text for pairs in TRANSLATIONS.values() for pair in pairs.items() for text in pair]
    texts += ["this example is about", "##s ##ed ##ing", "paris rome people city 0 1 2 3 4 5 6 7 8 9"]
    return sorted({word for text in texts for word in text.split()})
