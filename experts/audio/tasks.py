"""Tasks of the audio expert (speech, sounds and music), served by models of transformers."""

from collections.abc import Mapping

from experts.audio.classification import audio_classification, zero_shot_audio_classification
from experts.audio.text_to_audio import text_to_audio
from experts.audio.text_to_speech import text_to_speech
from experts.audio.transcription import automatic_speech_recognition
from experts.audio.voice_activity import voice_activity_detection
from experts.audio.voice_conversion import audio_to_audio
from experts.host.handler import Loader
from experts.torch_host.devices import TorchDevices

TASKS: Mapping[str, Loader] = {
    "automatic-speech-recognition": automatic_speech_recognition,
    "audio-classification": audio_classification,
    "zero-shot-audio-classification": zero_shot_audio_classification,
    "text-to-speech": text_to_speech,
    "text-to-audio": text_to_audio,
    "audio-to-audio": audio_to_audio,
    "voice-activity-detection": voice_activity_detection,
}

PRELOAD = ()
"""None: each model is loaded on its first call."""

DEVICES = TorchDevices()
