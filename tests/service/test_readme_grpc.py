"""The gRPC programs of gateway/README.md, run with stubs generated as it says, and without this repository."""

import asyncio
import os
import re
import sys
from pathlib import Path

import grpc
import pytest

from protos.hugginggpt.v1.task_pb2 import CatalogTask, TaskSpec
from tests.fakes import ScriptedSelector
from tests.readme import ROOT
from tests.support.api_keys import start_keyed_gateway
from tests.support.certificates import Authority
from tests.support.gateway import start_gateway
from tests.support.pages import code_blocks, read_section

ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):50051")
SELECTOR = ScriptedSelector([CatalogTask(spec=TaskSpec(name="summarization"))])


def examples(language: str) -> list[str]:
    """Examples of the page's section on gRPC."""
    return list(code_blocks(read_section(ROOT / "gateway" / "README.md", "gRPC"), language))


class Stranger:
    """A folder with the protos, the generated stubs and the test data, whose programs cannot import this repository."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs, packages = Path(sys.executable).parent, Path(grpc.__file__).parents[1]
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder / 'stubs'}:{packages}",
        }

    async def prepare(self) -> None:
        """Copies the public protos and generates the stubs."""
        protos = self._folder / "protos" / "hugginggpt" / "v1"
        protos.mkdir(parents=True)
        for proto in (ROOT / "protos" / "hugginggpt" / "v1").glob("*.proto"):
            (protos / proto.name).write_bytes(proto.read_bytes())
        (self._folder / "tests").symlink_to(ROOT / "tests")
        (command,) = examples("sh")
        await self._output("bash", "-ec", command)

    async def run(self, program: str, port: int, key: str = "") -> str:
        """Runs a program against the gateway at a port and returns its output.

        Only the port of the gateway is replaced. -S hides an editable installation of this repository.
        """
        here = ADDRESS.sub(lambda found: found[0].replace("50051", str(port)), program)
        return await self._output(sys.executable, "-S", "-c", here, HUGGINGGPT_API_KEY=key)

    async def _output(self, *command: str, **environment: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            env=self._environment | environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()


@pytest.fixture
async def stranger(tmp_path: Path) -> Stranger:
    folder = tmp_path / "stranger"
    folder.mkdir()
    stranger = Stranger(folder)
    await stranger.prepare()
    return stranger


async def test_programs_import_the_generated_stubs(stranger: Stranger, tmp_path: Path) -> None:
    program = "from protos.hugginggpt.v1 import gateway_pb2; print(gateway_pb2.__file__)"
    assert (await stranger.run(program, 0)).startswith(str(tmp_path))


async def test_first_program_prints_the_events_of_a_run(stranger: Stranger, tmp_path: Path) -> None:
    run, _with_key, _with_tls = examples("python")
    async with start_gateway(tmp_path) as gateway:
        lines = (await stranger.run(run, gateway.grpc_port)).splitlines()
    assert lines[0].strip() == "1 run_accepted"
    assert lines[-1].split()[1] == "run_ended"


async def test_program_with_key_lists_tasks(stranger: Stranger, tmp_path: Path) -> None:
    _run, with_key, _with_tls = examples("python")
    async with start_keyed_gateway(tmp_path, selector=SELECTOR) as keyed:
        _, token = await keyed.key("shop")
        assert await stranger.run(with_key, keyed.gateway.grpc_port, token) == "summarization\n"


async def test_program_with_key_and_tls_lists_tasks(stranger: Stranger, tmp_path: Path) -> None:
    _run, _with_key, with_tls = examples("python")
    authority = Authority(tmp_path / "stranger")
    shown = authority.certificate("gateway", "localhost")
    async with start_keyed_gateway(
        tmp_path, selector=SELECTOR, settings={"certificate": shown.chain, "certificate_key": shown.key}
    ) as keyed:
        _, token = await keyed.key("shop")
        assert await stranger.run(with_tls, keyed.gateway.grpc_port, token) == "summarization\n"
