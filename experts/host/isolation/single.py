"""Handler of a plain function that runs in a worker process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experts.host.handler import UNBATCHED, Call, Handler, Inputs, Media, Outputs, Parameters
from experts.host.isolation.runtime import run_isolated


@dataclass(frozen=True)
class IsolatedFunctionHandler(Handler):
    """Handler of a function of inputs and parameters; its calls run concurrently in worker processes."""

    function: Callable[[Inputs, Parameters], Outputs]
    port: str
    """The input port of its file."""
    batching = UNBATCHED
    concurrent = True

    def prepare(self, inputs: Inputs, parameters: Parameters) -> tuple[dict[str, Any], dict[str, Any]]:
        return dict(inputs), dict(parameters)

    def run(self, items: Sequence[tuple[Inputs, Parameters]], call: Call) -> list[Outputs]:  # noqa: ARG002  # use_call has it
        return [
            run_isolated(self.function, inputs, parameters, file=_file(inputs, self.port), port=self.port)
            for inputs, parameters in items
        ]

    def finish(self, raw: Outputs) -> Outputs:
        return raw


def isolated_single(function: Callable[[Inputs, Parameters], Outputs], *, port: str) -> Handler:
    """Adapts a function to a Handler that runs it in worker processes.

    Args:
        function: importable by its name, or a partial of such a function.
        port: input port of the file that it reads.
    """
    return IsolatedFunctionHandler(function, port)


def _file(inputs: Inputs, port: str) -> str:
    media = inputs.get(port)
    return media.name if isinstance(media, Media) else port
