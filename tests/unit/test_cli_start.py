import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from gateway.cli import app


def test_help_imports_no_command_implementation() -> None:
    program = "import sys, gateway.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {"grpc", "httpx", "pydantic", "fastapi", "services", "rich.live"} & set(done.stdout.split())


def test_commands_do_not_import_services() -> None:
    program = "import pkgutil, sys, importlib, gateway.cli as cli\n"
    program += "for module in pkgutil.iter_modules(cli.__path__, 'gateway.cli.'):\n"
    program += "    module.name.endswith('__main__') or importlib.import_module(module.name)\n"
    program += "print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stdout.split())
    assert "gateway.cli.ask" in imported
    assert not {"services.local.supervisor", "services.local.shared_process", "gateway.__main__", "fastapi"} & imported


def test_python_client_does_not_import_services() -> None:
    program = "import sys, gateway.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not {"grpc", "google.protobuf", "services", "protos", "fastapi", "numpy"} & set(done.stdout.split())


def test_option_names_are_lower_case() -> None:
    """Some releases of typer take a metavar that spells the option's name for the name."""
    assert [name for name in options(get_command(app)) if name != name.lower()] == []


def options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (name for name in parameter.opts if name.startswith("--"))
    for subcommand in getattr(command, "commands", {}).values():
        yield from options(subcommand)
