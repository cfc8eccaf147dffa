"""Notes on what could not be planned: what is missing, and what to do."""

from collections.abc import Sequence

from services.planner.embedded.clauses import Clause
from services.planner.embedded.resources import Resource
from services.planner.plan import Note, NoteKind
from services.planner.task_spec import Modality

MOST_NAMED = 8
"""Most files a note lists."""

LONGEST_SPAN = 300

_REMEDIES = {
    Modality.TEXT: "paste the text into the request in quotation marks, or send it as a file",
    Modality.TABLE: "send it as a CSV file",
}


def unoffered(name: str, words: str) -> Note:
    """A kind of task is known, but no expert offers it."""
    remedy = "add one that does with `hugginggpt experts add ADDRESS`"
    return _unmapped(f"“{words}” calls for {name}, which no expert here offers: {remedy}.", words)


def failing(name: str, experts: Sequence[str], words: str) -> Note:
    """An expert offers a kind of task, and all its models for it have failed."""
    remedy = "try again soon, and see with `hugginggpt experts` what is wrong"
    many = len(experts) > 1
    offering = f"experts {', '.join(experts)} offer" if many else f"expert {experts[0]} offers"
    state = "are failing" if many else "is failing"
    return _unmapped(f"“{words}” calls for {name}, which {offering}, but {state} at the moment: {remedy}.", words)


def unknown(words: str) -> Note:
    """No kind of task matches the words."""
    return _unmapped(f"“{words}” matches no kind of task offered here: see what is with `hugginggpt tasks`.", words)


def conditional(words: str) -> Note:
    """A part of the request depends on a condition, and a plan has none."""
    remedy = "ask for what it depends on first, then ask again with the result"
    return _unmapped(f"“{words}” depends on a condition, and a plan has no conditions: {remedy}.", words)


def beyond_tasks(words: str) -> Note:
    """An order that no kind of task carries out."""
    remedy = "tasks work on what was sent and show what they give; do the rest yourself with it"
    return _unmapped(f"“{words}” asks for something that no kind of task here does: {remedy}.", words)


def unclear_correction(words: str) -> Note:
    """A correction, and what it replaces is not clear."""
    return _clarify(f"“{words}” corrects something, and it is unclear what: write the whole request again.", words)


def whole_only(words: str) -> Note:
    """A task is wanted for a part of what was sent, and takes all of it."""
    remedy = "send only that part to get nothing else"
    return _unmapped(f"“{words}” is about a part, and tasks work on all that was sent: {remedy}.", words)


def counted_each(words: str) -> Note:
    """A sum over several files is wanted of what tasks count in each."""
    return _unmapped(f"“{words}” asks for a sum, and tasks count in each file: add the numbers up.", words)


def compared(words: str) -> Note:
    """One of several files is meant by a comparison, and the tasks take all."""
    return _unmapped(f"“{words}” picks one by a comparison, and tasks do not compare: name the file.", words)


def converted_only(words: str) -> Note:
    """More than a format is wanted of a conversion."""
    remedy = "ask for the other change first, then for the format"
    return _unmapped(f"“{words}” asks for more than a format, and a conversion changes nothing else: {remedy}.", words)


def which_language(clause: Clause) -> Note:
    """It is unclear which of several texts is in which language."""
    remedy = "name the language right after each quoted text"
    return _unmapped(f"“{clause.words}” does not say which text is in which language: {remedy}.", clause.words)


def unread(words: str) -> Note:
    """The request asks for more tasks than a plan can have."""
    return _unmapped("The request asks for more than a plan can have, and its end was not read: split it.", words)


def not_understood(words: str) -> Note:
    """Nothing in the words is understood."""
    return _unmapped("These words were not understood: say in English what is to be done.", words)


def lost(clause: Clause, before: str) -> Note:
    """A step would go on with the result of another that could not be planned."""
    return _unmapped(f"“{clause.words}” needs what “{before}” would have given.", clause.words)


def cut(clause: Clause, done: int, total: int) -> Note:
    """More resources were given than one task is split over."""
    text = f"“{clause.words}” is done for the first {done} of {total}: ask for the others in another request."
    return _unmapped(text, clause.words)


def needed(clause: Clause, modality: Modality) -> Note:
    """A step needs an input that was not sent."""
    remedy = _REMEDIES.get(modality, f"send the {modality} with the request")
    return _clarify(f"“{clause.words}” needs a {modality}, and there is none: {remedy}.", clause.words)


def two_needed(clause: Clause) -> Note:
    """A comparison needs two texts."""
    text = f"“{clause.words}” compares texts, and there are not two: quote them both, or send them as files."
    return _clarify(text, clause.words)


def unpaired(clause: Clause, counts: Sequence[int]) -> Note:
    """The inputs of a step differ in number."""
    many = " and ".join(map(str, counts))
    return _clarify(f"“{clause.words}” is given {many} things: say which belong together.", clause.words)


def not_sent(name: str, resources: Sequence[Resource]) -> Note:
    """A file is named that was not sent."""
    sent = _sent(resources)
    here = f"what was sent is {', '.join(sent)}" if sent else "no file was sent"
    text = f"{name} is named but was not sent ({here}): send it with the request, or correct its name."
    return _clarify(text, name)


def overlooked(resources: Sequence[Resource]) -> Note:
    """Files that the request means go into no task: something is missing."""
    words = f"{_names(resources)} was sent and is meant, but no task was found for it"
    return _clarify(f"{words}: say what to do with it.", _names(resources))


def left_out(resources: Sequence[Resource]) -> Note:
    """Files that nothing in the request seems to be about."""
    names = _names(resources)
    text = f"Not used, as nothing in the request seemed to be about it: {names}. If something was, say what."
    return Note(NoteKind.TRIMMED, text, names[:LONGEST_SPAN])


def without_request(words: str, resources: Sequence[Resource]) -> Note:
    """Words that ask for nothing, with files or without."""
    if sent := _sent(resources):
        return _clarify(f"Say what to do with {', '.join(sent)}.", words)
    return _chat(
        words, "This states something and asks for no task: send a file or a text, and say what to do with it."
    )


def question_without_text(words: str) -> Note:
    """A question, and nothing to find the answer in."""
    return _chat(words, f"“{words}” needs a text or a file to find the answer in: send one with the question.")


def small_talk(words: str, kind: str) -> Note:
    """Greetings, thanks and the like."""
    return _chat(words, _REPLIES[kind])


_WHAT_IT_DOES = (
    "HuggingGPT does things with texts, pictures, recordings and documents. Send a file or a text and say what to do,"
    " such as “read the text in this image aloud”, “summarize report.pdf” or “how many people are in this photo?”."
    " `hugginggpt tasks` lists all it can do now."
)
_REPLIES = {
    "help": _WHAT_IT_DOES,
    "self": f"I am a program, not a person. {_WHAT_IT_DOES}",
    "thanks": "You are welcome.",
    "farewell": "Goodbye.",
    "greeting": "Hello! Send a file or a text and say what to do with it.",
    "other": "All right. Send a file or a text and say what to do with it.",
}
"""Replies to small talk without a chat model, by the kinds of patterns.json."""


def _chat(words: str, text: str) -> Note:
    """Words that need an answer but no task; the text is for deployments without a chat model."""
    return Note(NoteKind.CHAT, text, words[:LONGEST_SPAN])


def _names(resources: Sequence[Resource]) -> str:
    names = [resource.names[0] for resource in resources]
    rest = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *rest])


def _sent(resources: Sequence[Resource]) -> list[str]:
    return [resource.names[0] for resource in resources if resource.names and not resource.age][:MOST_NAMED]


def _unmapped(text: str, words: str) -> Note:
    return Note(NoteKind.UNMAPPED, text, words[:LONGEST_SPAN])


def _clarify(text: str, words: str) -> Note:
    return Note(NoteKind.CLARIFY, text, words[:LONGEST_SPAN])
