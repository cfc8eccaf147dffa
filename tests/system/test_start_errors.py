"""A process with invalid configuration logs one error with a remedy, without traceback and secrets, and exits."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.failed_starts import start_service
from tests.support.postgres import PASSWORD

pytestmark = pytest.mark.slow

SECRET = "secret-of-the-tests"  # contained in every environment of these tests


def _certificates(folder: Path, days: float) -> dict[str, str]:
    local_stack = Authority(folder)
    shown = local_stack.identity("service", days=days).certificate
    return {"TLS_CERTIFICATE": str(shown.chain), "TLS_KEY": str(shown.key), "TLS_AUTHORITY": str(local_stack.file)}


def _expired(folder: Path) -> Mapping[str, str]:
    return _certificates(folder, days=-1)


def _unmounted(folder: Path) -> Mapping[str, str]:
    return {**_certificates(folder, days=1), "TLS_CERTIFICATE": "/etc/hugginggpt/tls/tls.crt"}


def _unwritable(folder: Path) -> Mapping[str, str]:
    (folder / "file").write_text("no folder")
    return {"ARTIFACTS_URL": (folder / "file" / "artifacts").as_uri()}


Wrong = Mapping[str, str] | Callable[[Path], Mapping[str, str]]

CASES: Mapping[str, tuple[str, Wrong, str]] = {
    "invalid number": ("services.planner", {"DRAIN_SECONDS": "soon"}, "DRAIN_SECONDS: Input should be"),
    "two invalid variables": (
        "services.responder",
        {"LOG_FORMAT": "loud", "DRAIN_SECONDS": "-1"},
        "DRAIN_SECONDS: Input should be greater than or equal to 0; LOG_FORMAT",
    ),
    "invalid prefixed variable": ("services.planner", {"PLANNER_VARIETY": "2"}, "PLANNER_VARIETY"),
    "empty journal URL": (
        "services.orchestrator",
        {"ORCHESTRATOR_JOURNAL": ""},
        "ORCHESTRATOR_JOURNAL: is empty",
    ),
    "empty database URL": ("gateway", {"GATEWAY_DATABASE": ""}, "GATEWAY_DATABASE: is empty"),
    "empty store URL": ("experts.lite", {"ARTIFACTS_URL": ""}, "ARTIFACTS_URL: is empty"),
    "empty certificate": ("services.selector", {"TLS_CERTIFICATE": ""}, "TLS_CERTIFICATE: is empty"),
    "certificate without key": (
        "services.selector",
        {"TLS_CERTIFICATE": "/tls.crt"},
        "TLS needs a certificate, its key",
    ),
    "expired certificate": ("services.planner", _expired, "certificate has expired"),
    "missing certificate file": ("gateway", _unmounted, "cannot read /etc/hugginggpt/tls/tls.crt"),
    "LLM endpoint without model": (
        "services.responder",
        {"LLM_BASE_URL": "http://llm/v1", "LLM_API_KEY": SECRET},
        "an endpoint is set without a model: set LLM_MODEL",
    ),
    "malformed LLM URL": (
        "services.selector",
        {"LLM_BASE_URL": f"llm:{SECRET}", "LLM_MODEL": "m"},
        "LlmSettings.BASE_URL: is not a URL",
    ),
    "malformed listen address": ("services.planner", {"PLANNER_LISTEN": "everywhere"}, "cannot listen on everywhere"),
    "malformed metrics address": (
        "services.planner",
        {"METRICS_LISTEN": "here:metrics"},
        "cannot serve metrics",
    ),
    "public address without authentication": (
        "gateway",
        {"GATEWAY_HTTP_LISTEN": "0.0.0.0:0"},
        "without authentication",
    ),
    "host instead of a database URL": (
        "services.orchestrator",
        {"ORCHESTRATOR_JOURNAL": "postgres:5432"},
        "is not the path of a file",
    ),
    "unsupported database": (
        "gateway",
        {"GATEWAY_DATABASE": f"mysql://a:{SECRET}@b/c"},
        "mysql is not a supported database",
    ),
    "malformed store URL": (
        "services.orchestrator",
        {"ARTIFACTS_URL": "hugginggpt/artifacts"},
        "cannot open the artifact store",
    ),
    "unwritable folder": ("gateway", _unwritable, "cannot use"),
    "malformed expert address": ("services.selector", {"SELECTOR_EXPERTS": "experts"}, "experts is not host:port"),
    "unknown allowed model": ("experts.lite", {"EXPERT_ALLOWED": "org/other"}, "none of the models that are allowed"),
    "malformed device map": ("experts.lite", {"EXPERT_DEVICES": "gpu"}, "EXPERT_DEVICES: 'gpu' is not MODEL=DEVICE"),
    "missing GPU": ("experts.lite", {"EXPERT_DEVICES": "*=cuda"}, "there is no device cuda"),
}


@pytest.mark.parametrize(("module", "environment_or_factory", "message"), CASES.values(), ids=CASES)
async def test_invalid_configuration_is_logged_once_and_ends_the_process(
    module: str, environment_or_factory: Wrong, message: str, tmp_path: Path
) -> None:
    environment = environment_or_factory(tmp_path) if callable(environment_or_factory) else environment_or_factory
    async with start_service(tmp_path / "home", module, **environment) as process:
        status = await process.end()
        (error,) = process.errors
        assert status == 1
        assert error["event"] == "cannot run"
        assert process.other == []
        assert message in error["error"]
        assert error["remedy"]
        assert SECRET not in str(process.log)


async def test_wrong_database_password_is_not_retried(postgres: str, tmp_path: Path) -> None:
    environment = {"ORCHESTRATOR_JOURNAL": postgres.replace(PASSWORD, SECRET)}
    async with start_service(tmp_path, "services.orchestrator", **environment) as process:
        assert await process.end() == 1
        (error,) = process.errors
        assert "password authentication failed" in error["error"]
        assert SECRET not in str(process.log)
