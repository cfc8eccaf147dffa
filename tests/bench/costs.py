"""What 1,000 items of three pipelines use and cost, beside the same work by an LLM, at prices that the user enters.

Seconds are measured: what the items of a batch say they used, and the orchestrator's own. Tokens are reckoned: no LLM
is asked. Prices are those that the product reads: ORCHESTRATOR_PRICES, LLM_PRICES and LLM_MODEL; where none is entered
there is a gap.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from protos.hugginggpt.v1.artifact_pb2 import NamedValue, Value
from protos.hugginggpt.v1.batch_pb2 import NewItem
from protos.hugginggpt.v1.plan_pb2 import Plan
from protos.hugginggpt.v1.task_pb2 import Argument, Reference
from services.common.artifacts import ArtifactStore
from services.common.settings import from_environment
from services.llm.settings import LlmSettings, Price
from services.llm.token_estimate import Estimate
from services.llm.usage import cost
from services.orchestrator.settings import Settings
from tests.bench.batches.client import asking, seconds
from tests.bench.host import ONE_CORE
from tests.bench.processes import Running, printed, service, staged
from tests.bench.rows import Row, gap
from tests.bench.sized import tasks as sized
from tests.data.signs import BROKEN, LETTERS, WORDS, png, sign
from tests.support.batches import Asking, given, step

THOUSAND = 1000
CPU = "cpu"
IMAGE_TOKENS = 255
"""Of a picture of up to 512 pixels a side, by a published rule: 85, and 170 for each tile of 512. Others differ."""

NO_PRICES = 'no price entered: set ORCHESTRATOR_PRICES, such as {"cpu": PRICE OF A SECOND}'
NO_LLM_PRICE = 'no price entered: set LLM_PRICES, such as {"model": {"input": PRICE, "output": PRICE}}, and LLM_MODEL'


@dataclass(frozen=True)
class Work:
    """A pipeline, and what an LLM would be asked instead."""

    name: str
    plan: Plan
    items: Sequence[Mapping[str, str | bytes]]
    """What each is given; bytes are pictures."""
    question: str
    answer: str
    """As an LLM would write it for one item."""
    without: str = ""
    """What the LLM leaves undone."""

    @property
    def input_tokens(self) -> float:
        """Of an item."""
        read = [_tokens(each) for item in self.items for each in item.values()]
        return Estimate().tokens(self.question) + sum(read) / len(self.items)

    @property
    def output_tokens(self) -> float:
        return Estimate().tokens(self.answer)


@dataclass(frozen=True)
class Took:
    """What items of a pipeline used together."""

    items: int
    pools: Mapping[str, float]
    """Seconds by pool, as the items say."""
    own: float
    """CPU-seconds of the orchestrator."""

    def per_thousand(self) -> dict[str, float]:
        """Seconds by pool of 1,000 items, the orchestrator's with those of CPUs."""
        whole = {**self.pools, CPU: self.pools.get(CPU, 0.0) + self.own}
        return {pool: used / self.items * THOUSAND for pool, used in whole.items()}


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    prices, llm = from_environment(Settings).prices, _priced(LlmSettings())
    with TemporaryDirectory() as home:
        os.environ["ARTIFACTS_URL"] = (Path(home) / "artifacts").as_uri()
        measured = [*await _lite(Path(home)), *await _sized(Path(home))]
    return [row for work, took in measured for row in told(work, took, prices, llm)]


def told(work: Work, took: Took | None, prices: Mapping[str, float], llm: tuple[str, Price] | None) -> list[Row]:
    """The rows of one pipeline; None could not be measured here."""
    tokens = work.input_tokens * THOUSAND, work.output_tokens * THOUSAND
    said = f"reckoned: {tokens[0]:.0f} in, {tokens[1]:.0f} out{f'; {work.without}' if work.without else ''}"
    llm_row = _llm_row(work, tokens, llm)
    return [
        *_own_rows(work, took, prices, llm_row.value),
        Row(f"costs.{work.name}_llm_tokens", round(sum(tokens)), "tokens/1,000 items", note=said),
        llm_row,
    ]


def _own_rows(work: Work, took: Took | None, prices: Mapping[str, float], llm: float | None) -> list[Row]:
    used, paid = f"costs.{work.name}_{{}}_seconds", f"costs.{work.name}_cost"
    if took is None:
        why = "torch is not installed: pip install 'hugginggpt[text,vision]'"
        return [gap(used.format(CPU), "s/1,000 items", None, why), gap(paid, "per 1,000 items", None, why)]
    spent = took.per_thousand()
    note = f"of {took.items} items; {took.own / took.items * THOUSAND:.2g} s of it are the orchestrator's"
    seconds_rows = [
        Row(used.format(pool), _round(spent[pool]), "s/1,000 items", note=note if pool == CPU else "")
        for pool in sorted(spent)
    ]
    if missing := sorted(spent.keys() - prices.keys()):
        why = f"{NO_PRICES}; there is none for {', '.join(missing)}"
        return [*seconds_rows, gap(paid, "per 1,000 items", None, why)]
    whole = sum(prices[pool] * used for pool, used in spent.items())
    at = ", ".join(f"{prices[pool]:g} a second of {pool}" for pool in sorted(spent))
    note = f"at {at}; busy seconds only: what stands idle costs, too; the reference is the LLM's"
    return [*seconds_rows, Row(paid, _round(whole), "per 1,000 items", reference=llm, note=note)]


def _llm_row(work: Work, tokens: tuple[float, float], llm: tuple[str, Price] | None) -> Row:
    name = f"costs.{work.name}_llm_cost"
    if llm is None:
        return gap(name, "per 1,000 items", None, NO_LLM_PRICE)
    model, price = llm
    note = f"{model} at {price.input:g} in and {price.output:g} out a million tokens; {work.without}".rstrip("; ")
    return Row(name, _round(cost(price, round(tokens[0]), round(tokens[1]))), "per 1,000 items", note=note)


def _priced(settings: LlmSettings) -> tuple[str, Price] | None:
    """The model that is meant, and its price; of several the first, if none is meant."""
    model = settings.model or next(iter(settings.prices), "")
    return (model, settings.prices[model]) if model in settings.prices else None


# ---------------------------------------------------------------- the pipelines


def read_aloud() -> Work:
    """The demo's: a sign is read, spoken, and judged."""
    read = Argument(reference=Reference(task_id=1, output="text"))
    plan = Plan(
        tasks=[
            step(1, "image-to-text", "rapidocr", image=given("image")),
            step(2, "text-to-speech", "espeak-ng", text=read),
            step(3, "text-classification", "vaderSentiment", text=read),
        ]
    )
    signs = [png(sign([(line, LETTERS) for line in lines])) for name, *lines in WORDS if name != BROKEN]
    return Work(
        "read_aloud",
        plan,
        [{"image": picture} for picture in signs],
        question="Write down the text in this picture, and say whether it sounds happy: positive, negative or neutral.",
        answer="Fresh bread every day It smells wonderful! positive",
        without="the LLM does not speak",
    )


def classifying_text() -> Work:
    """A small BERT says what a text is."""
    texts = [f"{sized.text()} word{number}" for number in range(2 * sized.ITEMS)]
    plan = Plan(tasks=[step(1, sized.TASK_OF[sized.BERT], sized.BERT, text=given("text"))])
    question = "Which of these is the text: positive or negative? Answer with one word."
    return Work("text_classification", plan, [{"text": text} for text in texts], question, "positive")


def classifying_pictures() -> Work:
    """A small ViT says what a picture shows."""
    plan = Plan(tasks=[step(1, sized.TASK_OF[sized.VIT], sized.VIT, image=given("image"))])
    question = "Which of these does the picture show: a cat or a dog? Answer with one word."
    return Work("image_classification", plan, [{"image": sized.picture()}] * (2 * sized.ITEMS), question, "cat")


async def _lite(home: Path) -> list[tuple[Work, Took | None]]:
    async with service("experts.lite", "EXPERT", home) as expert:
        return await _run(home, expert, [read_aloud])


async def _sized(home: Path) -> list[tuple[Work, Took | None]]:
    works = [classifying_text, classifying_pictures]
    if not find_spec("torch"):
        return [(work(), None) for work in works]
    os.environ["EXPERT_MODELS_URL"] = (home / "models").as_uri()
    await printed("tests.bench.sized.build", home / "models", quietly=True)
    async with service("tests.bench.sized", "EXPERT", home, max_waiting="256") as expert:
        return await _run(home, expert, works)


async def _run(home: Path, expert: Running, works: Sequence[Callable[[], Work]]) -> list[tuple[Work, Took | None]]:
    """Each in a batch of its own, after another one that finds the models cold."""
    async with AsyncExitStack() as stack:
        selector = await stack.enter_async_context(
            service("services.selector", "SELECTOR", home, experts=expert.address)
        )
        journal = str(home / f"{Path(expert.address).name}.sqlite")
        stage = await stack.enter_async_context(staged(home, selector=selector.address, journal=journal))
        asked = await stack.enter_async_context(asking(stage.orchestrator.address))
        made = [work() for work in works]
        return [(work, await _took(asked, stage.orchestrator, work)) for work in made]


async def _took(asked: Asking, orchestrator: Running, work: Work) -> Took:
    items = [await _item(number, given_) for number, given_ in enumerate(work.items, start=1)]
    await _through(asked, work, items[:4])
    before = orchestrator.cpu_seconds()
    pools = await _through(asked, work, items)
    return Took(len(items), pools, orchestrator.cpu_seconds() - before)


async def _through(asked: Asking, work: Work, items: Sequence[NewItem]) -> Mapping[str, float]:
    batch = await asked.start(items, plan=work.plan, bypass_memo=True)
    seconds(await asked.ended(batch.batch_id))
    pools = defaultdict[str, float](float)
    for item in await asked.items(batch.batch_id):
        for pool, used in item.usage.pool_seconds.items():
            pools[pool] += used
    return pools


async def _item(number: int, given_: Mapping[str, str | bytes]) -> NewItem:
    inputs = [NamedValue(name=name, value=await _value(each)) for name, each in given_.items()]
    return NewItem(name=f"item {number}", inputs=inputs)


async def _value(given_: str | bytes) -> Value:
    if isinstance(given_, str):
        return Value(text=given_)
    store = ArtifactStore.open(os.environ["ARTIFACTS_URL"])
    return Value(artifact=await store.put("default", given_, media_type="image/png", name="picture.png"))


def _tokens(given_: str | bytes) -> int:
    return Estimate().tokens(given_) if isinstance(given_, str) else IMAGE_TOKENS


def _round(number: float) -> float:
    return float(f"{number:.3g}")
