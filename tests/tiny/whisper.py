"""A tiny Whisper, trained to transcribe tones with times and language."""

from pathlib import Path
from typing import Any

from tests.tiny.audio_files import HIGH, LOW, RATE, make_tone
from tests.tiny.training import train

UTTERANCES = (
    (make_tone(LOW, 2.0), "en", ((0.0, " hello", 1.0), (1.0, " world", 2.0))),
    (make_tone(HIGH, 2.0), "fr", ((0.0, " salut", 2.0),)),
    (make_tone(LOW, 30.0), "en", ((0.0, " long", 20.0), (20.0, " talk", 30.0))),
)
"""Sound, language, and the text with start and end of each segment."""

_WORDS = ("Ġhello", "Ġworld", "Ġsalut", "Ġlong", "Ġtalk")
_SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|fr|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)


def build_whisper(folder: Path) -> None:
    """Builds a Whisper that transcribes a low tone as English, and a high one as French."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperProcessor

    tokenizer = _make_tokenizer()
    features = WhisperFeatureExtractor(feature_size=16, sampling_rate=RATE)
    WhisperProcessor(features, tokenizer).save_pretrained(folder)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in _SPECIAL}
    model = _make_model(len(tokenizer), ids)
    batch = features([sound for sound, _, _ in UTTERANCES], sampling_rate=RATE, return_tensors="pt")
    rows = [_encode_utterance(tokenizer, ids, language, segments) for _, language, segments in UTTERANCES]
    longest = max(map(len, rows))
    decoder = torch.tensor([row + [ids["<|endoftext|>"]] * (longest - len(row)) for row in rows])

    def loss(model: Any) -> Any:
        logits = model(**batch, decoder_input_ids=decoder[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), decoder[:, 1:].flatten())

    train(model, loss).save_pretrained(folder)


def _make_tokenizer() -> Any:
    from tokenizers import AddedToken
    from transformers import WhisperTokenizer

    letters = sorted({letter for word in _WORDS for letter in word})
    vocabulary, merges = {letter: index for index, letter in enumerate(letters)}, []
    for word in _WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    vocabulary["<|endoftext|>"] = len(vocabulary)
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.add_special_tokens({"extra_special_tokens": list(_SPECIAL[1:])})
    times = [AddedToken(f"<|{tick * 0.02:.2f}|>", normalized=False) for tick in range(1501)]
    tokenizer.add_tokens(times)
    return tokenizer


def _make_model(size: int, ids: dict[str, int]) -> Any:
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    end, start = ids["<|endoftext|>"], ids["<|startoftranscript|>"]
    config = WhisperConfig(
        vocab_size=size,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_target_positions=32,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
        dropout=0.0,
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=start,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        max_length=32,
        is_multilingual=True,
        lang_to_id={name: ids[name] for name in ("<|en|>", "<|fr|>")},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        no_timestamps_token_id=ids["<|notimestamps|>"],
        max_initial_timestamp_index=50,
        return_timestamps=False,
    )
    return model


def _encode_utterance(
    tokenizer: Any, ids: dict[str, int], language: str, segments: tuple[tuple[float, str, float], ...]
) -> list[int]:
    row = [ids["<|startoftranscript|>"], ids[f"<|{language}|>"], ids["<|transcribe|>"]]
    first = ids["<|notimestamps|>"] + 1
    for start, text, end in segments:
        tokens = tokenizer(text, add_special_tokens=False).input_ids
        row += [first + round(start / 0.02), *tokens, first + round(end / 0.02)]
    return [*row, ids["<|endoftext|>"]]
