"""Speech to text: which of the two kinds of model a checkpoint holds."""

from experts.audio.ctc import Ctc
from experts.audio.whisper import Whisper
from experts.host.handler import Handler
from experts.torch_host.checkpoint import Checkpoint
from services.common.errors import FailedPrecondition


def automatic_speech_recognition(model_id: str, device: str) -> Handler:
    """Whisper and its kin, or an encoder with a CTC head.

    Raises:
        FailedPrecondition: LOAD_FAILED, it is neither.
    """
    from transformers import MODEL_FOR_CTC_MAPPING, AutoConfig, AutoModelForCTC, AutoProcessor
    from transformers import WhisperForConditionalGeneration as Generation

    checkpoint = Checkpoint.fetch(model_id, device)
    config = checkpoint.processor(AutoConfig)
    if config.model_type == "whisper":
        return Whisper(checkpoint, checkpoint.model(Generation), checkpoint.processor(AutoProcessor))
    if type(config) in MODEL_FOR_CTC_MAPPING:
        return Ctc(checkpoint, checkpoint.model(AutoModelForCTC), checkpoint.processor(AutoProcessor))
    raise FailedPrecondition(
        f"{model_id} is a {config.model_type}, which writes down no speech here",
        reason="LOAD_FAILED",
        remedy="take a Whisper or a model with a CTC head, such as wav2vec 2.0",
    )
