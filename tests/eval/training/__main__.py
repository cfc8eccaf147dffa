"""Trains the embedded planner's weights: python -m tests.eval.training."""

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from services.planner.embedded import learned as package
from services.planner.embedded.learned.weights import FILE, write
from tests.eval.lines import Line, read
from tests.eval.training.examples import examples, read_as
from tests.eval.training.learning import learned

DATA = Path(__file__).parent.parent / "data"
FILES = (DATA / "taskbench.jsonl", DATA / "training.jsonl")

FEWEST = 4
"""Smallest number of requests with an intent from which it can be learned."""

PROCESSES = 2


def intents(lines: Sequence[Line]) -> list[str]:
    """Names of intents with enough examples."""
    counts = Counter(name for line in lines if line.label for name in read_as(line.label))
    return sorted(name for name, count in counts.items() if count >= FEWEST)


def main() -> None:
    sources = [read(path) for path in FILES]
    names = intents([line for lines in sources for line in lines])
    given = [example for lines in sources for example in examples(lines, names)]
    data = write(learned(given, names, jobs=PROCESSES))
    target = Path(str(files(package).joinpath(FILE)))
    target.write_bytes(data)
    print(f"{len(given)} requests, {len(names)} intents: {len(data) / 1e6:.1f} MB in {target.name}")


if __name__ == "__main__":
    main()
