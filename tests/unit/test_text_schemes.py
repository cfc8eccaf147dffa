"""How each family of translation models is told languages."""

from typing import Any

import pytest

from experts.text.language_tokens import Scheme, scheme_of
from services.common.errors import FailedPrecondition


class Tokens:
    def __init__(self, input_ids: list[int]) -> None:
        self.input_ids = input_ids


class Tokenizer:
    """One whose tokens are the letters of what it is given, behind the language it was told."""

    supported_language_codes: tuple[str, ...] = ()
    added_tokens_encoder: dict[str, int]

    def __init__(self, vocabulary: tuple[str, ...] = (), **attributes: Any) -> None:
        self.added_tokens_encoder = {}
        self._vocabulary = vocabulary
        for name, value in attributes.items():
            setattr(self, name, value)

    def get_vocab(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self._vocabulary)}

    def __call__(self, text: str) -> Tokens:
        return Tokens([ord(letter) for letter in f"{getattr(self, 'src_lang', '')}{text}"])


class Config:
    def __init__(self, model_type: str, task_specific_params: dict[str, Any] | None = None) -> None:
        self.model_type, self.task_specific_params = model_type, task_specific_params


def said(scheme: Scheme, source: str, target: str) -> str:
    return "".join(map(chr, scheme.tokens("x", source, target)))


def test_marian_knows_its_pair_by_its_name() -> None:
    scheme = scheme_of(Tokenizer(), Config("marian"), "Helsinki-NLP/opus-mt-en-de")
    assert (set(scheme.sources), set(scheme.targets), said(scheme, "en", "de")) == ({"en"}, {"de"}, "x")


def test_marian_of_many_targets_is_told_which_first() -> None:
    tokenizer = Tokenizer(
        supported_language_codes=(">>fr<<", ">>deu<<", ">>xyz<<"), source_lang="eng", target_lang="mul"
    )
    scheme = scheme_of(tokenizer, Config("marian"), "org/opus-mt-tc-big-en-mul")
    assert (set(scheme.targets), said(scheme, "en", "de")) == ({"fr", "de"}, ">>deu<< x")


@pytest.mark.parametrize(
    ("tokenizer", "source", "target"),
    [
        (Tokenizer(src_lang="", lang_code_to_id={"en": 7, "de": 8}), "en", 8),
        (Tokenizer(src_lang="", lang_code_to_id={"en_XX": 7, "de_DE": 8}), "en_XX", 8),
        (Tokenizer(src_lang="", added_tokens_encoder={"eng_Latn": 7, "deu_Latn": 8, "<mask>": 9}), "eng_Latn", 8),
    ],
    ids=["M2M100", "mBART-50", "NLLB"],
)
def test_the_families_with_tokens_for_languages_put_one_on_each_side(
    tokenizer: Tokenizer, source: str, target: int
) -> None:
    scheme = scheme_of(tokenizer, Config("m2m_100"), "org/name")
    assert said(scheme, "en", "de") == source + "x"
    assert scheme.options("de") == {"forced_bos_token_id": target}


def test_of_a_language_in_two_scripts_each_keeps_its_own() -> None:
    codes = {"zho_Hant": 1, "zho_Hans": 2, "ace_Arab": 3}
    scheme = scheme_of(Tokenizer(src_lang="", added_tokens_encoder=codes), Config("m2m_100"), "org/nllb")
    assert scheme.targets == {"zh": "zho_Hans", "zh-Hant": "zho_Hant"}


def test_madlad_is_told_by_a_token_and_reads_whatever_comes() -> None:
    scheme = scheme_of(Tokenizer(("<2de>", "<2fr>", "<2xyz>", "a")), Config("t5"), "google/madlad400-3b-mt")
    assert (dict(scheme.sources), set(scheme.targets), said(scheme, "", "de")) == ({}, {"de", "fr"}, "<2de> x")


def test_t5_is_told_in_words_and_knows_some_pairs() -> None:
    config = Config("t5", {"translation_en_to_de": {}, "translation_en_to_fr": {}, "summarization": {}})
    scheme = scheme_of(Tokenizer(("a",)), config, "google-t5/t5-small")
    assert said(scheme, "en", "de") == "translate English to German: x"
    assert scheme.pairs == {("en", "de"), ("en", "fr")}


def test_a_model_of_no_such_family_is_refused() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        scheme_of(Tokenizer(("a",)), Config("bart"), "org/name")
    assert (caught.value.reason, "NLLB" in caught.value.remedy) == ("LOAD_FAILED", True)
