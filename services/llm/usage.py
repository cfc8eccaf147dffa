"""Resource usage of LLM calls."""

from dataclasses import dataclass
from datetime import timedelta

from protos.hugginggpt.v1 import usage_pb2
from services.llm.settings import Price


@dataclass(frozen=True)
class Usage:
    """Tokens, as reported by the endpoint or else estimated, cost and time of one or more calls.

    Args:
        input_tokens: of the prompt.
        output_tokens: of the answer.
        cost: in the currency of the price table; 0 without a price.
        busy_seconds: time of requests, without queueing and pauses.
        elapsed_seconds: time of the call.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    busy_seconds: float = 0.0
    elapsed_seconds: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        """Sums the usage of two consecutive calls."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
            self.busy_seconds + other.busy_seconds,
            self.elapsed_seconds + other.elapsed_seconds,
        )

    def to_proto(self) -> usage_pb2.Usage:
        """Converts to the protobuf message."""
        usage = usage_pb2.Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, cost=self.cost)
        usage.busy.FromTimedelta(timedelta(seconds=self.busy_seconds))
        usage.elapsed.FromTimedelta(timedelta(seconds=self.elapsed_seconds))
        return usage


def cost(price: Price | None, input_tokens: int, output_tokens: int) -> float:
    """Returns the cost in the currency of the price table; 0 without a price."""
    return (price.input * input_tokens + price.output * output_tokens) / 1e6 if price else 0.0
