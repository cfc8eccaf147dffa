"""What a model writes is checked while it streams."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from services.responder.allowed_links import Known, address
from services.responder.escape import inert
from services.responder.markdown_links import LONGEST_LABEL, LONGEST_TARGET
from services.responder.output_filter import LEFT_OUT, LONGEST_WORD, NOT_OURS, Checked
from services.responder.run_summary import Artifact

SPEECH = Artifact("speech.wav", "audio/wav", 120_345)
SIGN = Artifact("my sign [1].png", "image/png", 9)
KNOWN = Known(
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
    ("[report](artifact:task9.text)", f"report {NOT_OURS}"),
    ("see artifact:task9.text", f"see {NOT_OURS}"),
    ("[report.pdf](report.pdf)", f"report.pdf {NOT_OURS}"),
    ("I saved it as out.png.", f"I saved it as out.png {NOT_OURS}."),
    ("It is at /mnt/data/result, really", f"It is at /mnt/data/result {NOT_OURS}, really"),
    ("speech.wav and notes.txt", "speech.wav and notes.txt"),
    ("It costs 3.14 e.g. and/or km/h... ok", "It costs 3.14 e.g. and/or km/h... ok"),
    ("See https://known.example/a?b=1.", "See https://known.example/a?b=1."),
    ("[this](https://known.example/a?b=1)", "this (https://known.example/a?b=1)"),
    ("[https://known.example/a?b=1](https://known.example/a?b=1)", "https://known.example/a?b=1"),
    ("(https://known.example/a?b=1)", "(https://known.example/a?b=1)"),
    ("See https://known.example/a?b=2, now", f"See {LEFT_OUT}, now"),
    ("See HTTP://evil.example/x", f"See {LEFT_OUT}"),
    ("**www.evil.example**", f"**{LEFT_OUT}**"),
    ("www.known.example/x mailto:a@b.example", f"{LEFT_OUT} {LEFT_OUT}"),
    ("xhttp://evil.example.http://evil.example", f"x{LEFT_OUT}"),
    ("![x](https://evil.example/?q=secret)", f"x {LEFT_OUT}"),
    ("[x](javascript:alert(1))", f"x {LEFT_OUT}"),
    ("[x](//evil.example)", f"x {LEFT_OUT}"),
    ("[![a](artifact:task2.audio)](https://evil.example)", f"a (speech.wav) {LEFT_OUT}"),
    ("[a [b](artifact:task2.audio)](artifact:file1)", "a b (speech.wav) (my sign \\[1].png)"),
    ("[x]: https://evil.example", f"[x]\\: {LEFT_OUT}"),
    ("[x][y] and [1, 2] and a[0]", "[x]\\[y] and [1, 2] and a[0]"),
    ("[x](a b) [x]( and", "[x]\\(a b) [x]\\( and"),
    ("[`]`](javascript:alert(1)) b](/x)", "[`]`]\\(javascript:alert(1)) b]\\(/x)"),
    ("\\[x\\](artifact:task2.audio)", "\\[x\\](speech.wav)"),
    ("\\\\[x](javascript:a)", f"\\\\ x {LEFT_OUT}"),
    ("<b>x</b> <!-- --> <https://evil.example> \\<i>", f"\\<b>x\\</b> \\<!-- --> \\< {LEFT_OUT}> \\<i>"),
    ("\\\\<script>", "\\\\\\<script>"),
    ("<[speech.wav](artifact:task2.audio)>", "< speech.wav>"),
    ("1 < 2, a <3", "1 < 2, a <3"),
    ("\x1b]8;;x\x07 a\u202eb", "]8;;x ab"),
    ("http://例え.jp starts with http:// always", f"{LEFT_OUT}例え.jp starts with http:// always"),
    ("见https://known.example/a?b=1。好的", "见https://known.example/a?b=1。好的"),
    ("[" + "x" * LONGEST_LABEL + "](javascript:x)", "[" + "x" * LONGEST_LABEL + "]\\(javascript:x)"),
    ("http://evil.example/" + "x" * LONGEST_TARGET + " y", None),
    ("a." + "x" * LONGEST_WORD + "http://evil.example y", "a." + "x" * LONGEST_WORD + LEFT_OUT + " y"),
    ("[a\n\nb](javascript:x)", "[a\n\nb]\\(javascript:x)"),
    ("run ssh://me@evil.example/x now", f"run ssh: {LEFT_OUT} now"),
    ("javascript://evil%0aalert(1)", f"javascript: {LEFT_OUT}(1)"),
    ("it is a ratio of 3://4 // not a comment: //", "it is a ratio of 3://4 // not a comment: //"),
    ("the WWW is www, WWW: www。or www", "the WWW is www, WWW: www。or www"),
]  # fmt: skip


def checked(*pieces: str, known: Known = KNOWN) -> str:
    stream = Checked(known)
    return "".join([stream.add(piece) for piece in pieces]) + stream.end()


@pytest.mark.parametrize(("written", "shown"), [case for case in CASES if case[1] is not None])
def test_what_is_not_the_runs_becomes_words(written: str, shown: str) -> None:
    assert checked(written) == shown


@pytest.mark.parametrize("written", [case[0] for case in CASES])
def test_it_does_not_matter_where_the_text_is_split(written: str) -> None:
    whole = checked(written)
    for split in range(len(written) + 1):
        assert checked(written[:split], written[split:]) == whole
    assert checked(*written) == whole


PIECES = st.sampled_from(
    ["[", "]", "(", ")", "![", "](", "]:", "][", "<", ">", "\\", "`", " ", "\n", ".", "/", ":", '"', "a", "script",
     "htt", "ps://", "http://", "evil.example", "known.example/a?b=1", "https://known.example/a?b=1", "www.", "www",
     "artifact:", "task2.audio", "task9.x", "out.png", "speech.wav", "javascript:x", "é", "。", "\x1b", "//"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=40))
@example(["]", "https://known.example/a?b=1"])
def test_whatever_it_writes_nothing_live_comes_through(pieces: list[str]) -> None:
    shown = checked(*pieces)
    assert shown == checked("".join(pieces))
    assert not re.search(r"(?<!\\)(?:\\\\)*\][(:\[]", shown)
    assert not re.search(r"(?<!\\)(?:\\\\)*<[A-Za-z/!?]", shown)
    for found in re.findall(r"(?:https?://|www\.)[a-z][^\s<>\"`\\\[\]。]*", shown):
        assert KNOWN.has_address(address(found)) or "(" in found or ")" in found


def tokens(markdown: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").parse(markdown):
        yield from (token, *(token.children or ()))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        PIECES | st.sampled_from(["```\n", "    ", "- ", "> ", "\n\n", "[a]: /x\n", "&lt;", "*", "_"]), max_size=30
    )
)
def test_a_reader_of_markdown_finds_no_link_picture_or_html_in_it(pieces: list[str]) -> None:
    live = {"link_open", "image", "html_inline", "html_block"}
    for shown in (checked(*pieces), inert("".join(pieces))):
        assert not live & {token.type for token in tokens(shown)}


def test_what_needs_no_decision_is_shown_at_once() -> None:
    stream = Checked(KNOWN)
    assert [stream.add(piece) for piece in ("Hel", "lo, the s", "ign [say", "s] “Exit”", " h")] == [
        "Hel", "lo, the s", "ign ", "[says] “Exit”", " ",
    ]  # fmt: skip


def test_a_bracket_that_never_closes_holds_back_only_so_much() -> None:
    stream = Checked(KNOWN)
    shown = stream.add("[" + "x " * LONGEST_LABEL)
    assert shown.startswith("[x x")


def test_in_a_conversation_files_are_anybodys() -> None:
    talk = Known({}, about_files=False)
    assert checked("Write config.json into /etc/x/y.", known=talk) == "Write config.json into /etc/x/y."
    assert checked("[docs](docs.html)", known=talk) == f"docs {LEFT_OUT}"


def test_a_long_hostile_text_costs_little() -> None:
    for hostile in ("[" * 20_000, "![" * 10_000, "a." * 10_000, "](" * 10_000, "http" * 5_000, "\\" * 20_000):
        assert checked(*re.findall(".{1,50}", hostile, re.DOTALL))
