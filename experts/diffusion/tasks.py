"""The tasks of the diffusion expert: generation, editing, inpainting and upscaling of pictures, and control maps."""

from collections.abc import Mapping

from experts.diffusion.controlnet import map_text_to_image
from experts.diffusion.image_to_image import image_to_image
from experts.diffusion.inpainting import inpainting
from experts.diffusion.maps.depth import depth_control, normal_control
from experts.diffusion.maps.edges import canny_control, mlsd_control, scribble_control
from experts.diffusion.maps.hed import hed_control
from experts.diffusion.maps.poses import openpose_control
from experts.diffusion.maps.segmentation import seg_control
from experts.diffusion.super_resolution import image_super_resolution
from experts.diffusion.text_to_image import text_to_image
from experts.host.handler import Loader
from experts.torch_host.devices import TorchDevices

MAPS: Mapping[str, Loader] = {
    "canny": canny_control,
    "depth": depth_control,
    "hed": hed_control,
    "mlsd": mlsd_control,
    "normal": normal_control,
    "openpose": openpose_control,
    "scribble": scribble_control,
    "seg": seg_control,
}
"""Loader of each kind of control map; the loader of the text-to-image tasks is the same for all kinds."""

TASKS: Mapping[str, Loader] = {
    "text-to-image": text_to_image,
    "image-to-image": image_to_image,
    "inpainting": inpainting,
    "image-super-resolution": image_super_resolution,
    **{f"{name}-control": loader for name, loader in MAPS.items()},
    **{f"{name}-text-to-image": map_text_to_image for name in MAPS},
}

PRELOAD = ()
"""Empty, because each model has gigabytes: models are loaded on their first call."""

DEVICES = TorchDevices()
