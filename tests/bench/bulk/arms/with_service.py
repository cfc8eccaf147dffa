"""A batch of the services: the gateway, the other services and the experts on this machine, and `hugginggpt batch`."""

import asyncio
import json
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench.bulk.workloads import BY_NAME, Workload
from tests.bench.processes import service
from tests.bench.service_processes import start_services

FAILED_ITEMS = 1
"""Exit status of a batch of which items failed."""


async def run(workload: Workload, folder: str, results: Path, home: Path) -> None:
    """Starts the services, stores the pipeline, and runs it as a batch.

    Args:
        workload: the pipeline and its experts.
        folder: of the files.
        results: folder for them, which does not exist.
        home: of the services; one of an earlier run has the results of its tasks.
    """
    file = home / "pipeline.yaml"
    file.write_text(json.dumps(workload.pipeline), encoding="utf-8")
    async with AsyncExitStack() as stack:
        experts = [await stack.enter_async_context(service(module, "EXPERT", home)) for module in workload.modules]
        addresses = ",".join(expert.address for expert in experts)
        _, http = await stack.enter_async_context(start_services(home, addresses, {}))
        await call_gateway(http, "import", str(file))
        command = ("batch", workload.name, "--folder", folder, "--out", str(results), "--json")
        await call_gateway(http, *command, accepted=FAILED_ITEMS)


async def call_gateway(http: str, *arguments: str, accepted: int = 0) -> None:
    """Runs a command of `hugginggpt`.

    Args:
        http: host:port of the gateway.
        arguments: of the command.
        accepted: largest exit status that is no failure.

    Raises:
        RuntimeError: it failed.
    """
    command = (sys.executable, "-m", "gateway.cli", *arguments, "--url", f"http://{http}")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    status = await process.wait()
    if status > accepted:
        raise RuntimeError(f"{arguments[0]} exited with status {status}")


if __name__ == "__main__":
    name, folder, out = sys.argv[1:]
    results, home = Path(out) / "results", Path(out) / "home"
    home.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(results, ignore_errors=True)
    asyncio.run(run(BY_NAME[name], folder, results, home))
