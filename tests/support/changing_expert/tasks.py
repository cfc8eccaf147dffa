import os
from pathlib import Path

from experts.host.handler import Handler, single

TAMPERED = "tampered"
"""File in the home folder; while it exists, the outputs differ."""


def counting(model_id: str, device: str) -> Handler:
    home = Path(os.environ["HUGGINGGPT_HOME"])
    return single(lambda inputs, _: {"text": f"{len(inputs['text']) + (home / TAMPERED).exists()} letters"})


TASKS = {"letter-counting": counting}
