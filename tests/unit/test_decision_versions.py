"""Decisions name the prompt or the weights by which they were made."""

import re

from services.llm.prompt import prompt_version
from services.planner.embedded.learned.weights import weights
from services.planner.llm.prompt import PlanPromptBuilder
from services.responder import prompt
from services.selector import llm_prompt


def test_each_prompt_and_the_weights_have_a_version_of_their_own() -> None:
    prompts = [PlanPromptBuilder().version, prompt.VERSION, llm_prompt.VERSION]
    assert all(re.fullmatch("prompt:[0-9a-f]{16}", version) for version in prompts)
    assert len(set(prompts)) == len(prompts)
    assert re.fullmatch("weights:[0-9a-f]{16}", weights().version)


def test_a_version_changes_with_any_of_the_texts() -> None:
    texts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"ab", b"d")]
    assert len({prompt_version(*each) for each in texts}) == len(texts)
