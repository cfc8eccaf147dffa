"""Tasks of the vision expert, served by models of transformers."""

from collections.abc import Mapping

from experts.host.handler import Loader
from experts.torch_host.devices import TorchDevices
from experts.vision.classification import image_classification, zero_shot_image_classification
from experts.vision.depth import depth_estimation
from experts.vision.detection import object_detection, zero_shot_object_detection
from experts.vision.document_question_answering import document_question_answering
from experts.vision.features import image_feature_extraction
from experts.vision.image_to_text import image_to_text
from experts.vision.masks import mask_generation
from experts.vision.poses import keypoint_detection
from experts.vision.segmentation import image_segmentation
from experts.vision.visual_question_answering import visual_question_answering

TASKS: Mapping[str, Loader] = {
    "image-classification": image_classification,
    "object-detection": object_detection,
    "image-to-text": image_to_text,
    "image-segmentation": image_segmentation,
    "zero-shot-image-classification": zero_shot_image_classification,
    "zero-shot-object-detection": zero_shot_object_detection,
    "visual-question-answering": visual_question_answering,
    "document-question-answering": document_question_answering,
    "depth-estimation": depth_estimation,
    "mask-generation": mask_generation,
    "image-feature-extraction": image_feature_extraction,
    "keypoint-detection": keypoint_detection,
}

PRELOAD = ()
"""None: all models together take minutes to load and gigabytes of memory. Each is loaded on its first call."""

DEVICES = TorchDevices()
