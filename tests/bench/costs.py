"""Resources and cost of 1,000 items of three pipelines, compared with an LLM that does the same work.

Seconds are measured: from the usage of a batch's items, and the orchestrator's CPU time. Tokens are estimated, without
an LLM. Prices are the settings ORCHESTRATOR_PRICES, LLM_PRICES and LLM_MODEL; without them the costs are gaps.
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
from services.llm.token_budget import TokenEstimator
from services.orchestrator.settings import Settings
from tests.bench.batches.client import batch_client, seconds
from tests.bench.host import ONE_CORE
from tests.bench.processes import Running, printed, service, start_testbed
from tests.bench.rows import Row, gap
from tests.bench.small_models import tasks as small_models
from tests.data.signs import BROKEN, LETTERS, WORDS, png, sign
from tests.support.batches import OrchestratorClient, given, step

THOUSAND = 1000
CPU = "cpu"
IMAGE_TOKENS = 255
"""Of an image of up to 512 pixels a side, by a published rule: 85, plus 170 per tile of 512. Other models differ."""

NO_PRICES = 'no price configured: set ORCHESTRATOR_PRICES, such as {"cpu": PRICE_PER_SECOND}'
NO_LLM_PRICE = (
    'no price configured: set LLM_PRICES, such as {"model": {"input": PRICE, "output": PRICE}}, and LLM_MODEL'
)


@dataclass(frozen=True)
class Workload:
    """A pipeline with its items, and the equivalent request to an LLM.

    Attributes:
        name: in the rows.
        items: named inputs of each item; bytes are PNG images.
        question: the instruction to the LLM.
        answer: of the LLM for one item.
        limitation: what the LLM does not do.
    """

    name: str
    plan: Plan
    items: Sequence[Mapping[str, str | bytes]]
    question: str
    answer: str
    limitation: str = ""

    @property
    def input_tokens(self) -> float:
        """Mean input tokens of an item."""
        tokens = [_tokens(each) for item in self.items for each in item.values()]
        return TokenEstimator().tokens(self.question) + sum(tokens) / len(self.items)

    @property
    def output_tokens(self) -> float:
        return TokenEstimator().tokens(self.answer)


@dataclass(frozen=True)
class ResourceUsage:
    """Resources used by a batch.

    Attributes:
        items: their number.
        pools: seconds by pool, from the items' usage.
        orchestrator: CPU seconds of the orchestrator.
    """

    items: int
    pools: Mapping[str, float]
    orchestrator: float

    def per_thousand(self) -> dict[str, float]:
        """Seconds by pool for 1,000 items; the orchestrator's CPU time counts as pool cpu."""
        total = {**self.pools, CPU: self.pools.get(CPU, 0.0) + self.orchestrator}
        return {pool: used / self.items * THOUSAND for pool, used in total.items()}


async def rows() -> list[Row]:
    os.environ.update(ONE_CORE)
    prices, llm = from_environment(Settings).prices, _priced(LlmSettings())
    with TemporaryDirectory() as home:
        os.environ["ARTIFACTS_URL"] = (Path(home) / "artifacts").as_uri()
        measured = [*await _lite(Path(home)), *await _small_models(Path(home))]
    return [row for work, usage in measured for row in cost_rows(work, usage, prices, llm)]


def cost_rows(
    work: Workload, usage: ResourceUsage | None, prices: Mapping[str, float], llm: tuple[str, Price] | None
) -> list[Row]:
    """The rows of one pipeline.

    Args:
        work: the pipeline.
        usage: None if it could not be measured here.
        prices: per second, by pool.
        llm: a model and its price; None without one.
    """
    tokens = work.input_tokens * THOUSAND, work.output_tokens * THOUSAND
    note = f"estimated: {tokens[0]:.0f} in, {tokens[1]:.0f} out{f'; {work.limitation}' if work.limitation else ''}"
    llm_row = _llm_row(work, tokens, llm)
    return [
        *_pipeline_rows(work, usage, prices, llm_row.value),
        Row(f"costs.{work.name}_llm_tokens", round(sum(tokens)), "tokens/1,000 items", note=note),
        llm_row,
    ]


def _pipeline_rows(
    work: Workload, usage: ResourceUsage | None, prices: Mapping[str, float], llm: float | None
) -> list[Row]:
    used, paid = f"costs.{work.name}_{{}}_seconds", f"costs.{work.name}_cost"
    if usage is None:
        why = "torch is not installed: pip install 'hugginggpt[text,vision]'"
        return [gap(used.format(CPU), "s/1,000 items", None, why), gap(paid, "per 1,000 items", None, why)]
    spent = usage.per_thousand()
    orchestrator = usage.orchestrator / usage.items * THOUSAND
    note = f"of {usage.items} items; {orchestrator:.2g} s of it are the orchestrator's"
    seconds_rows = [
        Row(used.format(pool), _round(spent[pool]), "s/1,000 items", note=note if pool == CPU else "")
        for pool in sorted(spent)
    ]
    if missing := sorted(spent.keys() - prices.keys()):
        why = f"{NO_PRICES}; there is none for {', '.join(missing)}"
        return [*seconds_rows, gap(paid, "per 1,000 items", None, why)]
    total = sum(prices[pool] * seconds for pool, seconds in spent.items())
    rates = ", ".join(f"{prices[pool]:g} a second of {pool}" for pool in sorted(spent))
    note = f"at {rates}; busy seconds only, without the cost of idle hardware; reference: the LLM"
    return [*seconds_rows, Row(paid, _round(total), "per 1,000 items", reference=llm, note=note)]


def _llm_row(work: Workload, tokens: tuple[float, float], llm: tuple[str, Price] | None) -> Row:
    name = f"costs.{work.name}_llm_cost"
    if llm is None:
        return gap(name, "per 1,000 items", None, NO_LLM_PRICE)
    model, price = llm
    note = f"{model} at {price.input:g} in and {price.output:g} out a million tokens; {work.limitation}".rstrip("; ")
    return Row(name, _round(price.cost(round(tokens[0]), round(tokens[1]))), "per 1,000 items", note=note)


def _priced(settings: LlmSettings) -> tuple[str, Price] | None:
    """The configured model, or else the first with a price, and its price; None without a price."""
    model = settings.model or next(iter(settings.prices), "")
    return (model, settings.prices[model]) if model in settings.prices else None


# ---------------------------------------------------------------- the pipelines


def read_aloud() -> Workload:
    """The demo's pipeline: OCR of a sign, speech synthesis, and sentiment classification."""
    read = Argument(reference=Reference(task_id=1, output="text"))
    plan = Plan(
        tasks=[
            step(1, "image-to-text", "rapidocr", image=given("image")),
            step(2, "text-to-speech", "espeak-ng", text=read),
            step(3, "text-classification", "vaderSentiment", text=read),
        ]
    )
    signs = [png(sign([(line, LETTERS) for line in lines])) for name, *lines in WORDS if name != BROKEN]
    return Workload(
        "read_aloud",
        plan,
        [{"image": image} for image in signs],
        question="Write down the text in this picture, and say whether it sounds happy: positive, negative or neutral.",
        answer="Fresh bread every day It smells wonderful! positive",
        limitation="the LLM does not synthesize speech",
    )


def text_classification() -> Workload:
    """Classification of texts by a small BERT."""
    texts = [f"{small_models.text()} word{number}" for number in range(2 * small_models.ITEMS)]
    plan = Plan(tasks=[step(1, small_models.TASK_OF[small_models.BERT], small_models.BERT, text=given("text"))])
    question = "Which of these is the text: positive or negative? Answer with one word."
    return Workload("text_classification", plan, [{"text": text} for text in texts], question, "positive")


def image_classification() -> Workload:
    """Classification of images by a small ViT."""
    plan = Plan(tasks=[step(1, small_models.TASK_OF[small_models.VIT], small_models.VIT, image=given("image"))])
    question = "Which of these does the picture show: a cat or a dog? Answer with one word."
    items = [{"image": small_models.picture()}] * (2 * small_models.ITEMS)
    return Workload("image_classification", plan, items, question, "cat")


async def _lite(home: Path) -> list[tuple[Workload, ResourceUsage | None]]:
    async with service("experts.lite", "EXPERT", home) as expert:
        return await _run(home, expert, [read_aloud])


async def _small_models(home: Path) -> list[tuple[Workload, ResourceUsage | None]]:
    works = [text_classification, image_classification]
    if not find_spec("torch"):
        return [(work(), None) for work in works]
    os.environ["EXPERT_MODELS_URL"] = (home / "models").as_uri()
    await printed("tests.bench.small_models.build", home / "models", hide_stderr=True)
    async with service("tests.bench.small_models", "EXPERT", home, max_waiting="256") as expert:
        return await _run(home, expert, works)


async def _run(
    home: Path, expert: Running, works: Sequence[Callable[[], Workload]]
) -> list[tuple[Workload, ResourceUsage | None]]:
    """Runs each workload as a batch, after a small batch that loads the models."""
    async with AsyncExitStack() as stack:
        selector = await stack.enter_async_context(
            service("services.selector", "SELECTOR", home, experts=expert.address)
        )
        journal = str(home / f"{Path(expert.address).name}.sqlite")
        testbed = await stack.enter_async_context(start_testbed(home, selector=selector.address, journal=journal))
        client = await stack.enter_async_context(batch_client(testbed.orchestrator.address))
        workloads = [work() for work in works]
        return [(work, await _usage(client, testbed.orchestrator, work)) for work in workloads]


async def _usage(client: OrchestratorClient, orchestrator: Running, work: Workload) -> ResourceUsage:
    items = [await _item(number, inputs) for number, inputs in enumerate(work.items, start=1)]
    await _pool_seconds(client, work, items[:4])
    before = orchestrator.cpu_seconds()
    pools = await _pool_seconds(client, work, items)
    return ResourceUsage(len(items), pools, orchestrator.cpu_seconds() - before)


async def _pool_seconds(client: OrchestratorClient, work: Workload, items: Sequence[NewItem]) -> Mapping[str, float]:
    """Runs a batch to its end, and returns the seconds used by pool."""
    batch = await client.start(items, plan=work.plan, bypass_memo=True)
    seconds(await client.ended(batch.batch_id))
    pools = defaultdict[str, float](float)
    for item in await client.items(batch.batch_id):
        for pool, used in item.usage.pool_seconds.items():
            pools[pool] += used
    return pools


async def _item(number: int, inputs: Mapping[str, str | bytes]) -> NewItem:
    named = [NamedValue(name=name, value=await _value(content)) for name, content in inputs.items()]
    return NewItem(name=f"item {number}", inputs=named)


async def _value(content: str | bytes) -> Value:
    if isinstance(content, str):
        return Value(text=content)
    store = ArtifactStore.open(os.environ["ARTIFACTS_URL"])
    return Value(artifact=await store.put("default", content, media_type="image/png", name="image.png"))


def _tokens(content: str | bytes) -> int:
    return TokenEstimator().tokens(content) if isinstance(content, str) else IMAGE_TOKENS


def _round(number: float) -> float:
    return float(f"{number:.3g}")
