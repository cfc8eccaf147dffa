"""SpeechT5's voices and its vocoder, and changing the voice of a recording with them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from experts.audio.random_seed import seeded
from experts.audio.waveforms import at_pauses, heard, is_silent, recording
from experts.host import load_context
from experts.host.audio import MAX_SECONDS
from experts.host.handler import UNBATCHED, Batching, Call, Handler, Inputs, Outputs, Parameters
from experts.host.media import renamed
from experts.torch_host.checkpoint import Checkpoint
from experts.torch_host.devices import inference_context
from experts.torch_host.torch_handler import TorchHandler
from services.common.errors import InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

VOCODER = "microsoft/speecht5_hifigan"
FILE = "voices.safetensors"
"""Speaker embeddings by name, beside a model's weights. The makers published theirs as a data set."""

_PIECE = 15.0
_LONGEST = 2.0
"""Mel frames for each frame of the encoder, at most: naturally there are 1.25."""
_SEED = 0


class Voices:
    """The speakers a model is told to sound like."""

    def __init__(self, checkpoint: Checkpoint, size: int) -> None:
        self._model_id, self._size = checkpoint.model_id, size
        self._known = _read(checkpoint)

    def named(self, said: str) -> str:
        """The name of a voice that is there; empty for no speaker in particular.

        Raises:
            InvalidRequest: the model has no such voice.
        """
        if not said:
            return next(iter(self._known), "")
        if said in self._known:
            return said
        raise InvalidRequest(
            f"{self._model_id} has no voice {said[:40]!r}",
            remedy=f"leave the voice out{', or choose among ' + ', '.join(self._known) if self._known else ''}",
        )

    def placed(self, name: str, model: Any) -> Any:
        """What the model is told; the middle of all speakers where none is known."""
        import torch

        one = self._known[name] if name else torch.zeros(self._size)
        return one.reshape(1, -1).to(model.device, model.dtype)


def vocoder_of(checkpoint: Checkpoint) -> Checkpoint:
    """In the model's own folder vocoder, or the one its makers published."""
    own = checkpoint.folder / "vocoder"
    if own.is_dir():
        return replace(checkpoint, folder=own)
    with load_context.use(replace(load_context.current(), revision="")):  # the card's commit is the model's
        return replace(Checkpoint.fetch(VOCODER, str(checkpoint.device)), dtype=checkpoint.dtype)


def audio_to_audio(model_id: str, device: str) -> Handler:
    """SpeechT5 from speech to speech."""
    from transformers import AutoFeatureExtractor, SpeechT5ForSpeechToSpeech, SpeechT5HifiGan

    checkpoint = Checkpoint.fetch(model_id, device)
    features, vocoder = checkpoint.processor(AutoFeatureExtractor), vocoder_of(checkpoint)
    model = checkpoint.model(SpeechT5ForSpeechToSpeech)
    return Conversion(checkpoint, model, features, vocoder.model(SpeechT5HifiGan))


@dataclass(frozen=True)
class Recording:
    """One caller's."""

    parts: list["Samples"]
    seconds: float
    name: str


class Conversion(TorchHandler):
    batching: ClassVar[Batching] = UNBATCHED

    def __init__(self, checkpoint: Checkpoint, model: Any, features: Any, vocoder: Any) -> None:
        super().__init__(checkpoint, model)
        self._features, self._vocoder = features, vocoder
        self._rate, self._rate_out = int(features.sampling_rate), int(vocoder.config.sampling_rate)
        self._voices = Voices(checkpoint, model.config.speaker_embedding_dim)

    def prepare(self, inputs: Inputs, parameters: Parameters) -> Recording:  # noqa: ARG002  # there are none
        samples = heard(inputs["audio"], self._rate, longest=MAX_SECONDS)
        if is_silent(samples):
            raise InvalidRequest(
                f"{inputs['audio'].name} is silent: there is no voice in it", port="audio", remedy="record it again"
            )
        name = renamed(inputs["audio"], "voice", "wav")
        return Recording(at_pauses(samples, self._rate, _PIECE), len(samples) / self._rate, name)

    def cost(self, item: Recording) -> float:
        return item.seconds

    def run(self, items: Sequence[Recording], call: Call) -> list[tuple[Any, str]]:
        import torch

        made = []
        for item in items:
            sounds: list[Any] = []
            for part in item.parts:
                if call.cancelled:
                    return []
                sounds.append(self._converted(part))
                call.progress(len(sounds) / len(item.parts))
            made.append((torch.cat(sounds).numpy(), item.name))
        return made

    def finish(self, raw: tuple[Any, str]) -> Outputs:
        sound, name = raw
        return {"audio": recording(sound, self._rate_out, name)}

    def close(self) -> None:
        self._vocoder = None
        super().close()

    def _converted(self, part: "Samples") -> Any:
        import torch

        if is_silent(part):
            return torch.zeros(int(len(part) / self._rate * self._rate_out))
        batch = self._features(audio=part, sampling_rate=self._rate, return_tensors="pt")
        speaker = self._voices.placed(self._voices.named(""), self.model)
        values = batch["input_values"].to(self.model.device, self.model.dtype)
        with inference_context(self.model_id), seeded(_SEED, self.model.device):
            sound = self.model.generate_speech(values, speaker, maxlenratio=_LONGEST, vocoder=self._vocoder)
        return sound.float().cpu().reshape(-1)


def _read(checkpoint: Checkpoint) -> dict[str, Any]:
    from safetensors.torch import load_file

    place = checkpoint.folder / FILE
    return dict(sorted(load_file(place).items())) if place.is_file() else {}
