"""Voice conversion with SpeechT5, with its speaker embeddings and vocoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from experts.audio.random_seed import use_seed
from experts.audio.waveforms import decode_samples, encode_recording, is_silent, split_at_pauses
from experts.host import load_context
from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import derive_name
from experts.host.media.audio import MAX_SECONDS
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import FailedPrecondition, InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

VOCODER, VOCODER_COMMIT = "microsoft/speecht5_hifigan", "6f01b211b404df2e0a0a20ca79628a757bb35854"
VOICES_FILE = "voices.safetensors"
"""File next to a model's weights with speaker embeddings by name. SpeechT5's authors published theirs as a data set."""

_MAX_PART_SECONDS = 15.0
_MAX_LENGTH_RATIO = 2.0
"""Maximum mel frames per encoder frame; the ratio of normal speech is 1.25."""
_SEED = 0


class Voices:
    """Speaker embeddings of a model, from the file next to its weights.

    Raises:
        FailedPrecondition: LOAD_FAILED, there is no such file. Without an embedding the model makes noises, not speech.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        from safetensors.torch import load_file

        self._model_id, path = checkpoint.model_id, checkpoint.folder / VOICES_FILE
        self._embeddings: dict[str, Any] = dict(sorted(load_file(path).items())) if path.is_file() else {}
        if not self._embeddings:
            raise FailedPrecondition(
                f"{self._model_id} has no {VOICES_FILE} with speaker embeddings",
                reason="LOAD_FAILED",
                remedy="serve it from EXPERT_MODELS_URL, with a file of one vector per voice next to its weights",
            )

    def find(self, name: str) -> str:
        """Checks a voice's name and returns it; an empty name selects the first voice.

        Raises:
            InvalidRequest: the model has no such voice.
        """
        if not name:
            return next(iter(self._embeddings))
        if name in self._embeddings:
            return name
        raise InvalidRequest(
            f"{self._model_id} has no voice {name[:40]!r}",
            remedy=f"omit the parameter voice, or choose among {', '.join(self._embeddings)}",
        )

    def embedding(self, name: str, model: Any) -> Any:
        """Returns the embedding of a voice as input of the model."""
        return self._embeddings[name].reshape(1, -1).to(model.device, model.dtype)


def fetch_vocoder(checkpoint: Checkpoint) -> Checkpoint:
    """Returns the checkpoint of the vocoder: the model's own folder "vocoder", or the one its authors published."""
    own = checkpoint.folder / "vocoder"
    if own.is_dir():
        return replace(checkpoint, folder=own)
    with load_context.use_revision(VOCODER_COMMIT):
        return replace(Checkpoint.fetch(VOCODER, str(checkpoint.device)), dtype=checkpoint.dtype)


def audio_to_audio(model_id: str, device: str) -> Handler:
    """Loads SpeechT5 for speech to speech."""
    from transformers import AutoFeatureExtractor, SpeechT5ForSpeechToSpeech, SpeechT5HifiGan

    checkpoint = Checkpoint.fetch(model_id, device)
    features, vocoder = checkpoint.processor(AutoFeatureExtractor), fetch_vocoder(checkpoint)
    model = checkpoint.model(SpeechT5ForSpeechToSpeech)
    return VoiceConverter(checkpoint, model, features, vocoder.model(SpeechT5HifiGan))


@dataclass(frozen=True)
class ConversionItem:
    """Recording of one call."""

    parts: list["Samples"]
    seconds: float
    name: str


class VoiceConverter(TorchHandler):
    """Changes the voice of a recording."""

    batching = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any, vocoder: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._vocoder = features, vocoder
        self._rate, self._rate_out = int(features.sampling_rate), int(vocoder.config.sampling_rate)
        self._voices = Voices(checkpoint)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> ConversionItem:  # noqa: ARG002  # the task has none
        samples = decode_samples(inputs["audio"], self._rate, max_seconds=MAX_SECONDS)
        if is_silent(samples):
            raise InvalidRequest(
                f"{inputs['audio'].name} is silent: it contains no voice", port="audio", remedy="record it again"
            )
        name = derive_name(inputs["audio"], "voice", "wav")
        return ConversionItem(split_at_pauses(samples, self._rate, _MAX_PART_SECONDS), len(samples) / self._rate, name)

    def cost(self, item: ConversionItem) -> float:
        return item.seconds

    def run(self, items: Sequence[ConversionItem], call: Call) -> list[tuple[Any, str]]:
        import torch

        results = []
        for item in items:
            sounds: list[Any] = []
            for part in item.parts:
                if call.cancelled:
                    return []
                sounds.append(self._convert(part))
                call.progress(len(sounds) / len(item.parts))
            results.append((torch.cat(sounds).numpy(), item.name))
        return results

    def finish(self, raw: tuple[Any, str]) -> Outputs:
        sound, name = raw
        return {"audio": encode_recording(sound, self._rate_out, name)}

    def close(self) -> None:
        self._vocoder = None
        super().close()

    def _convert(self, part: "Samples") -> Any:
        import torch

        if is_silent(part):
            return torch.zeros(int(len(part) / self._rate * self._rate_out))
        batch = self._features(audio=part, sampling_rate=self._rate, return_tensors="pt")
        speaker = self._voices.embedding(self._voices.find(""), self.model)
        values = batch["input_values"].to(self.model.device, self.model.dtype)
        with inference_context(self.model_id), use_seed(_SEED, self.model.device):
            sound = self.model.generate_speech(values, speaker, maxlenratio=_MAX_LENGTH_RATIO, vocoder=self._vocoder)
        return sound.float().cpu().reshape(-1)
