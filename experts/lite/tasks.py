"""The tasks of the lite expert: engines whose models are part of their Python packages, without downloads."""

from collections.abc import Mapping

from experts.host.handler import Loader
from experts.lite.calculation import calculation
from experts.lite.classification import text_classification
from experts.lite.conversion import audio_conversion, image_conversion
from experts.lite.detection import object_detection
from experts.lite.document_question_answering import document_question_answering
from experts.lite.entities import token_classification
from experts.lite.image_editing import image_to_image
from experts.lite.noise_reduction import audio_to_audio
from experts.lite.ocr import image_to_text
from experts.lite.question_answering import question_answering
from experts.lite.segmentation import image_segmentation
from experts.lite.summarization import summarization
from experts.lite.text_statistics import page_count, text_statistics
from experts.lite.text_to_speech import text_to_speech
from experts.lite.transcription import automatic_speech_recognition

TASKS: Mapping[str, Loader] = {
    "image-to-text": image_to_text,
    "document-question-answering": document_question_answering,
    "text-to-speech": text_to_speech,
    "automatic-speech-recognition": automatic_speech_recognition,
    "audio-to-audio": audio_to_audio,
    "text-classification": text_classification,
    "token-classification": token_classification,
    "summarization": summarization,
    "question-answering": question_answering,
    "object-detection": object_detection,
    "image-segmentation": image_segmentation,
    "image-to-image": image_to_image,
    "image-conversion": image_conversion,
    "audio-conversion": audio_conversion,
    "text-statistics": text_statistics,
    "page-count": page_count,
    "calculation": calculation,
}

REQUIRES: Mapping[str, str] = {
    "rapidocr": "rapidocr",
    "espeak-ng": "espeakng_loader",
    "pocketsphinx/en-us": "pocketsphinx",
    "lite/spectral-gate": "soundfile",
    "vaderSentiment": "vaderSentiment",
    "py3langid": "py3langid",
    "opencv/haar-frontalface": "cv2",
    "opencv/people": "cv2",
    "opencv/grabcut": "cv2",
    "lite/image-edits": "cv2",
    "lite/textrank": "numpy",
    "lite/image-formats": "PIL",
    "lite/audio-formats": "soundfile",
    "lite/page-count": "pypdfium2",
}
"""Python module that each model requires; its version is the model's revision."""

ISOLATED = (
    "cv2",
    "onnxruntime",
    "rapidocr",
    "pocketsphinx",
    "experts.lite.conversion",
    "experts.lite.detection",
    "experts.lite.image_editing",
    "experts.lite.noise_reduction",
    "experts.lite.ocr",
    "experts.lite.segmentation",
    "experts.lite.transcription",
)
"""Modules of the engines that run in worker processes."""
