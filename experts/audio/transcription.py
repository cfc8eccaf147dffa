"""Speech recognition: selects the handler for a checkpoint."""

from experts.audio.ctc import CtcTranscriber
from experts.audio.whisper import WhisperTranscriber
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition


def automatic_speech_recognition(model_id: str, device: str) -> Handler:
    """Loads Whisper, or an encoder with a CTC head.

    Raises:
        FailedPrecondition: LOAD_FAILED, it is neither.
    """
    from transformers import MODEL_FOR_CTC_MAPPING, AutoConfig, AutoModelForCTC, AutoProcessor
    from transformers import WhisperForConditionalGeneration as Generation

    checkpoint = Checkpoint.fetch(model_id, device)
    config = checkpoint.processor(AutoConfig)
    if config.model_type == "whisper":
        return WhisperTranscriber(checkpoint, checkpoint.model(Generation), checkpoint.processor(AutoProcessor))
    if type(config) in MODEL_FOR_CTC_MAPPING:
        return CtcTranscriber(checkpoint, checkpoint.model(AutoModelForCTC), checkpoint.processor(AutoProcessor))
    raise FailedPrecondition(
        f"{model_id} is of type {config.model_type}, which is not supported for speech recognition",
        reason="LOAD_FAILED",
        remedy="use a Whisper model or one with a CTC head, such as wav2vec 2.0",
    )
