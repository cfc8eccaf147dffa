"""Answers to the requests with which `hugginggpt doctor` checks an endpoint."""

import json
import re
from typing import Any

NUMBERS = "one two three four five six seven eight nine ten eleven twelve"


def doctor_answer(body: Any) -> str | None:
    """The answer of a model that follows the instructions; None for other requests."""
    prompt = body["messages"][0]["content"]
    if prompt.startswith("Count from one"):
        return NUMBERS
    schema = body.get("response_format", {}).get("json_schema", {})
    if schema.get("name") == "colour":
        return json.dumps({"colour": schema["schema"]["properties"]["colour"]["enum"][0]})
    if prompt.startswith("Describe the sky"):
        return "It is blue."
    if "the secret word" in prompt:
        word = re.match(r"The secret word is (\w+)\.", prompt)
        return word[1] if word else "I see no word."
    return None
