"""How source and target language are passed to each family of translation models."""

from typing import Any

import pytest

from experts.text.language_schemes import LanguageScheme, find_scheme
from services.common.errors import FailedPrecondition


class Tokens:
    def __init__(self, input_ids: list[int]) -> None:
        self.input_ids = input_ids


class Tokenizer:
    """Fake tokenizer: its tokens are the characters of src_lang and the text."""

    supported_language_codes: tuple[str, ...] = ()
    added_tokens_encoder: dict[str, int]

    def __init__(self, vocabulary: tuple[str, ...] = (), **attributes: Any) -> None:
        self.added_tokens_encoder = {}
        self._vocabulary = vocabulary
        for name, value in attributes.items():
            setattr(self, name, value)

    def get_vocab(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self._vocabulary)}

    def __call__(self, text: str) -> Tokens:
        return Tokens([ord(letter) for letter in f"{getattr(self, 'src_lang', '')}{text}"])


class Config:
    def __init__(self, model_type: str, task_specific_params: dict[str, Any] | None = None) -> None:
        self.model_type, self.task_specific_params = model_type, task_specific_params


def encode(scheme: LanguageScheme, source: str, target: str) -> str:
    return "".join(map(chr, scheme.encode("x", source, target)))


def test_marian_languages_are_read_from_the_model_name() -> None:
    scheme = find_scheme(Tokenizer(), Config("marian"), "Helsinki-NLP/opus-mt-en-de")
    assert set(scheme.sources) == {"en"}
    assert set(scheme.targets) == {"de"}
    assert encode(scheme, "en", "de") == "x"


def test_marian_with_several_targets_gets_the_target_as_prefix() -> None:
    tokenizer = Tokenizer(
        supported_language_codes=(">>fr<<", ">>deu<<", ">>xyz<<"), source_lang="eng", target_lang="mul"
    )
    scheme = find_scheme(tokenizer, Config("marian"), "org/opus-mt-tc-big-en-mul")
    assert set(scheme.targets) == {"fr", "de"}
    assert encode(scheme, "en", "de") == ">>deu<< x"


@pytest.mark.parametrize(
    ("tokenizer", "source", "target"),
    [
        (Tokenizer(src_lang="", lang_code_to_id={"en": 7, "de": 8}), "en", 8),
        (Tokenizer(src_lang="", lang_code_to_id={"en_XX": 7, "de_DE": 8}), "en_XX", 8),
        (Tokenizer(src_lang="", added_tokens_encoder={"eng_Latn": 7, "deu_Latn": 8, "<mask>": 9}), "eng_Latn", 8),
    ],
    ids=["M2M100", "mBART-50", "NLLB"],
)
def test_language_token_families_set_source_and_target_tokens(tokenizer: Tokenizer, source: str, target: int) -> None:
    scheme = find_scheme(tokenizer, Config("m2m_100"), "org/name")
    assert encode(scheme, "en", "de") == source + "x"
    assert scheme.options("de") == {"forced_bos_token_id": target}


def test_language_with_two_scripts_has_a_code_for_each() -> None:
    codes = {"zho_Hant": 1, "zho_Hans": 2, "ace_Arab": 3}
    scheme = find_scheme(Tokenizer(src_lang="", added_tokens_encoder=codes), Config("m2m_100"), "org/nllb")
    assert scheme.targets == {"zh": "zho_Hans", "zh-Hant": "zho_Hant"}


def test_madlad_gets_a_target_token_and_has_no_source_languages() -> None:
    scheme = find_scheme(Tokenizer(("<2de>", "<2fr>", "<2xyz>", "a")), Config("t5"), "google/madlad400-3b-mt")
    assert dict(scheme.sources) == {}
    assert set(scheme.targets) == {"de", "fr"}
    assert encode(scheme, "", "de") == "<2de> x"


def test_t5_gets_an_instruction_and_supports_its_configured_pairs() -> None:
    config = Config("t5", {"translation_en_to_de": {}, "translation_en_to_fr": {}, "summarization": {}})
    scheme = find_scheme(Tokenizer(("a",)), config, "google-t5/t5-small")
    assert encode(scheme, "en", "de") == "translate English to German: x"
    assert scheme.pairs == {("en", "de"), ("en", "fr")}


def test_model_of_another_family_fails_to_load() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        find_scheme(Tokenizer(("a",)), Config("bart"), "org/name")
    assert caught.value.reason == "LOAD_FAILED"
    assert "NLLB" in caught.value.remedy
