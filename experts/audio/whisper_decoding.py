"""Decoding of Whisper's windows: greedy first, then sampled at higher temperatures where the text is improbable."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experts.torch_host.sampling import Sampling, build_sampler

if TYPE_CHECKING:
    import torch

_SEED = 0
"""Equal recordings have equal transcripts."""


@dataclass(frozen=True)
class Thresholds:
    """When a window is decoded again, or has no speech; the values of Whisper's authors."""

    temperatures: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """In the order in which they are tried."""
    max_compression: float = 2.4
    """Bytes of a text by those of its compressed form; more are repetitions."""
    min_log_probability: float = -1.0
    """Mean of the tokens' log-probabilities; less is improbable."""
    max_no_speech: float = 0.6
    """Probability of no speech; a window above it with an improbable text is silent."""


@dataclass(frozen=True)
class DecodedWindow:
    """Tokens of a window with the logarithms of their probabilities, until the end of the text."""

    tokens: list[int]
    logs: list[float]
    no_speech: float
    """Probability that the window has no speech."""

    @property
    def log_probability(self) -> float:
        return sum(self.logs) / max(1, len(self.logs))

    def is_silent(self, thresholds: Thresholds) -> bool:
        return self.no_speech > thresholds.max_no_speech and self.log_probability < thresholds.min_log_probability

    def is_doubtful(self, text: str, thresholds: Thresholds) -> bool:
        """Whether the window should be decoded again: its text is improbable or repeats itself."""
        if self.is_silent(thresholds):
            return False
        return (
            self.log_probability < thresholds.min_log_probability
            or compression_ratio(text) > thresholds.max_compression
        )


def compression_ratio(text: str) -> float:
    """Returns the bytes of a text divided by those of its compressed form."""
    content = text.encode()
    return len(content) / len(zlib.compress(content))


class WindowDecoder:
    """Decodes encoded windows; what a window becomes does not depend on the others of its batch.

    Args:
        model: a Whisper.
        tokenizer: its tokenizer.
        languages: token of each language by its name in the vocabulary; empty for a model of one language.
        thresholds: when a window is decoded again.
    """

    def __init__(
        self, model: Any, tokenizer: Any, languages: dict[str, int], thresholds: Thresholds = Thresholds()
    ) -> None:
        self._model, self._tokenizer, self._languages = model, tokenizer, languages
        self.thresholds = thresholds
        self._no_speech_token = model.generation_config.no_timestamps_token_id - 1  # in every vocabulary of Whisper

    def classify(self, encoded: "torch.Tensor") -> tuple[list[str], list[float]]:
        """Returns the language of each window, empty for a model of one language, and its probability of no speech."""
        import torch

        start = torch.full((len(encoded), 1), self._model.generation_config.decoder_start_token_id)
        logits = self._model(
            encoder_outputs=_to_encoder_outputs(encoded), decoder_input_ids=start.to(encoded.device), use_cache=False
        ).logits[:, -1]
        no_speech = logits.float().softmax(-1)[:, self._no_speech_token].tolist()
        names, tokens = list(self._languages), list(self._languages.values())
        best = logits[:, tokens].argmax(-1).tolist() if tokens else []
        return [names[index].strip("<|>") for index in best] or [""] * len(encoded), no_speech

    def decode(
        self, encoded: "torch.Tensor", languages: Sequence[str], no_speech: Sequence[float]
    ) -> list[DecodedWindow]:
        """Returns the tokens of each window, decoded at the first temperature at which the text is plausible."""
        windows: dict[int, DecodedWindow] = {}
        remaining = list(range(len(encoded)))
        for temperature in self.thresholds.temperatures:
            rows = self._generate(encoded[remaining], [languages[index] for index in remaining], temperature)
            for index, (tokens, logs) in zip(remaining, rows, strict=True):
                windows[index] = DecodedWindow(tokens, logs, no_speech[index])
            remaining = [index for index in remaining if self._is_doubtful(windows[index])]
            if not remaining:
                break
        return [windows[index] for index in range(len(encoded))]

    def _is_doubtful(self, window: DecodedWindow) -> bool:
        text = self._tokenizer.decode(window.tokens, skip_special_tokens=True)
        return window.is_doubtful(text, self.thresholds)

    def _generate(
        self, encoded: "torch.Tensor", languages: Sequence[str], temperature: float
    ) -> list[tuple[list[int], list[float]]]:
        recorder = _build_recorder()
        processors = [recorder]
        if temperature:
            processors.append(build_sampler(_Unrestricted, Sampling(temperature, _SEED)))
        out = self._model.generate(
            encoder_outputs=_to_encoder_outputs(encoded),
            **({"language": list(languages), "task": "transcribe"} if self._languages else {}),
            return_timestamps=True,
            force_unique_generate_call=True,
            logits_processor=processors,
            do_sample=False,
            num_beams=1,
        )
        tokens = out[:, out.shape[1] - recorder.steps :]
        end = self._tokenizer.eos_token_id
        rows = zip(tokens.tolist(), recorder.logs_of(tokens), strict=True)
        return [_truncate_after(end, row, logs) for row, logs in rows]


class _Unrestricted:
    """Samples from all tokens."""

    top_k, top_p = 0, 1.0


def _truncate_after(end: int, tokens: list[int], logs: list[float]) -> tuple[list[int], list[float]]:
    length = tokens.index(end) + 1 if end in tokens else len(tokens)
    return tokens[:length], logs[:length]


def _build_recorder() -> Any:
    """Returns a logits processor that records the log-probabilities at each step, before sampling."""
    import torch
    from transformers import LogitsProcessor

    class Recorder(LogitsProcessor):
        def __init__(self) -> None:
            self._scores: list[torch.Tensor] = []

        def __call__(self, input_ids: "torch.Tensor", scores: "torch.Tensor") -> "torch.Tensor":  # noqa: ARG002
            self._scores.append(scores)
            return scores

        @property
        def steps(self) -> int:
            return len(self._scores)

        def logs_of(self, tokens: "torch.Tensor") -> list[list[float]]:
            """Returns the log-probability of each token."""
            steps = [
                scores.float().log_softmax(-1).gather(-1, column[:, None])
                for scores, column in zip(self._scores, tokens.unbind(1), strict=True)
            ]
            rows: list[list[float]] = torch.cat(steps, dim=1).tolist()
            return rows

    return Recorder()


def _to_encoder_outputs(hidden: "torch.Tensor") -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=hidden)
