from experts.host.handler import Handler, single


def uppercase(model_id: str, device: str) -> Handler:
    return single(lambda inputs, parameters: {"text": inputs["text"].upper() + "!" * parameters["marks"]})


TASKS = {"text-shouting": uppercase}
