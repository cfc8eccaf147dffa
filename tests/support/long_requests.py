"""Long requests of text that is difficult to parse, by name."""

from collections.abc import Callable, Mapping

Make = Callable[[int], str]
"""A request of the given number of bytes."""

_SENTENCES = "The museum opened on 3 May 2024. Who wrote this letter? Translate it into German; then summarize it. "


def _filled(unit: str, before: str = "", after: str = "") -> Make:
    def make(size: int) -> str:
        remaining = size - len(before.encode()) - len(after.encode())
        return before + unit * (remaining // len(unit.encode())) + after

    return make


def _numbered(unit: str) -> Make:
    def make(size: int) -> str:
        count = size // (len(unit.format(number=size).encode()))
        text = "".join(unit.format(number=size - number) for number in range(count))
        return text.ljust(size - 1)

    return make


LONG_REQUESTS: Mapping[str, Make] = {
    "one word": _filled("x"),
    "spaces": _filled(" ", "summarize this", "now"),
    "newlines": _filled("\n", "summarize this:", "now"),
    "quotations": _filled('"a" '),
    "quotation marks": _filled('"', "summarize "),
    "unclosed apostrophes": _filled(" 'a", "summarize "),
    "unclosed quotation marks": _filled("“", "summarize "),
    "unclosed Japanese quotation marks": _filled("「", "summarize "),
    "code fences": _filled("```a\n", "summarize "),
    "sentences": _filled(_SENTENCES),
    "paragraphs": _filled(_SENTENCES + "\n\n", "Summarize this:\n\n"),
    "commands": _filled("Summarize it. Translate it into German. "),
    "questions": _filled("What is this? "),
    "instructions in one sentence": _filled("summarize and translate and transcribe it, then "),
    "then": _filled("x. then a. ", "Summarize the following: "),
    "pasted text": _filled("lorem ipsum dolor ", "Summarize the following: "),
    "numbers": _filled("12345 "),
    "digits": _filled("9", "resize to "),
    "files": _numbered("photo{number}.png "),
    "unfinished file name": _filled("a(", "describe "),
    "URLs": _numbered("https://example.org/{number}/a.png "),
    "one URL": _filled("a.,", "describe https://"),
    "paths": _filled("/a", "read "),
    "combining characters": _filled("a\u0301\u0300", "translate "),
    "brackets": _filled("[{(", "summarize "),
    "languages": _filled("German, French and Spanish, ", "translate good morning into "),
    "labels": _filled("red, blue or green, ", "is it "),
    "full stops": _filled(". ", "summarize "),
    "greetings": _filled("hello ", "", "x"),
    "conditions": _filled("if it is long ", "summarize it "),
    "German": _filled("Fasse den Text zusammen und übersetze ihn ins Englische. "),
    "Chinese": _filled("请总结这段文字并翻译成英文"),  # no spaces at all
    "Korean": _filled("이 텍스트를 요약하고 영어로 번역해 주세요. "),
    "Russian": _filled("Пожалуйста переведи текст. "),
    "private-use characters": _filled("\ue001\ue006\ue100", "summarize "),
}
