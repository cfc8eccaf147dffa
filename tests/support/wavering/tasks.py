import os
from pathlib import Path

from experts.host.handler import Handler, single

TAMPERED = "tampered"
"""A file in the house's folder: while it is there, answers are others."""


def counting(model_id: str, device: str) -> Handler:
    home = Path(os.environ["HUGGINGGPT_HOME"])
    return single(lambda inputs, _: {"text": f"{len(inputs['text']) + (home / TAMPERED).exists()} letters"})


TASKS = {"letter-counting": counting}
