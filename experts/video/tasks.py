"""The tasks of the video expert: understanding with transformers, generation with diffusers."""

from collections.abc import Mapping

from experts.host.handler import Loader
from experts.torch_host.devices import TorchDevices
from experts.video.generation import image_to_video, text_to_video
from experts.video.understanding import video_classification, video_to_text

TASKS: Mapping[str, Loader] = {
    "video-classification": video_classification,
    "video-to-text": video_to_text,
    "text-to-video": text_to_video,
    "image-to-video": image_to_video,
}

PRELOAD = ()
"""Empty, because each model is large: models are loaded on their first call."""

DEVICES = TorchDevices()
