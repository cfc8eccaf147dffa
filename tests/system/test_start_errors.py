"""A process with invalid configuration logs one error with a remedy, without traceback and secrets, and exits."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.failed_starts import started
from tests.support.postgres import PASSWORD

pytestmark = pytest.mark.slow

SECRET = "secret-of-the-tests"  # contained in every environment of these tests


def _certificates(folder: Path, days: float) -> dict[str, str]:
    house = Authority(folder)
    shown = house.identity("service", days=days).certificate
    return {"TLS_CERTIFICATE": str(shown.chain), "TLS_KEY": str(shown.key), "TLS_AUTHORITY": str(house.file)}


def _expired(folder: Path) -> Mapping[str, str]:
    return _certificates(folder, days=-1)


def _unmounted(folder: Path) -> Mapping[str, str]:
    return {**_certificates(folder, days=1), "TLS_CERTIFICATE": "/etc/hugginggpt/tls/tls.crt"}


def _unwritable(folder: Path) -> Mapping[str, str]:
    (folder / "file").write_text("no folder")
    return {"ARTIFACTS_URL": (folder / "file" / "artifacts").as_uri()}


Wrong = Mapping[str, str] | Callable[[Path], Mapping[str, str]]

CASES: Mapping[str, tuple[str, Wrong, str]] = {
    "a number that is none": ("services.planner", {"DRAIN_SECONDS": "soon"}, "DRAIN_SECONDS: Input should be"),
    "two at once": (
        "services.responder",
        {"LOG_FORMAT": "loud", "DRAIN_SECONDS": "-1"},
        "DRAIN_SECONDS: Input should be greater than or equal to 0; LOG_FORMAT",
    ),
    "a name out of reach": ("services.planner", {"PLANNER_VARIETY": "2"}, "PLANNER_VARIETY"),
    "no secret for the journal": (
        "services.orchestrator",
        {"ORCHESTRATOR_JOURNAL": ""},
        "ORCHESTRATOR_JOURNAL: is empty",
    ),
    "no secret for the gateway": ("gateway", {"GATEWAY_DATABASE": ""}, "GATEWAY_DATABASE: is empty"),
    "no store": ("experts.lite", {"ARTIFACTS_URL": ""}, "ARTIFACTS_URL: is empty"),
    "no certificate": ("services.selector", {"TLS_CERTIFICATE": ""}, "TLS_CERTIFICATE: is empty"),
    "certificate without key": (
        "services.selector",
        {"TLS_CERTIFICATE": "/tls.crt"},
        "TLS needs a certificate, its key",
    ),
    "a certificate that has run out": ("services.planner", _expired, "certificate has expired"),
    "a certificate that is not mounted": ("gateway", _unmounted, "cannot read /etc/hugginggpt/tls/tls.crt"),
    "an LLM without a model": (
        "services.responder",
        {"LLM_BASE_URL": "http://llm/v1", "LLM_API_KEY": SECRET},
        "there is an endpoint and no model: set LLM_MODEL",
    ),
    "no URL of an LLM": (
        "services.selector",
        {"LLM_BASE_URL": f"llm:{SECRET}", "LLM_MODEL": "m"},
        "LlmSettings.BASE_URL: is not a URL",
    ),
    "an address that is none": ("services.planner", {"PLANNER_LISTEN": "everywhere"}, "cannot listen on everywhere"),
    "a port for metrics that is none": (
        "services.planner",
        {"METRICS_LISTEN": "here:metrics"},
        "cannot serve metrics",
    ),
    "strangers without keys": ("gateway", {"GATEWAY_HTTP_LISTEN": "0.0.0.0:0"}, "without authentication"),
    "a host for a database": (
        "services.orchestrator",
        {"ORCHESTRATOR_JOURNAL": "postgres:5432"},
        "is not the path of a file",
    ),
    "another kind of database": (
        "gateway",
        {"GATEWAY_DATABASE": f"mysql://a:{SECRET}@b/c"},
        "mysql is not a supported database",
    ),
    "a bucket without a store": (
        "services.orchestrator",
        {"ARTIFACTS_URL": "hugginggpt/artifacts"},
        "cannot open the artifact store",
    ),
    "a folder that cannot be made": ("gateway", _unwritable, "cannot use"),
    "experts nowhere": ("services.selector", {"SELECTOR_EXPERTS": "experts"}, "experts is no host:port"),
    "models it does not have": ("experts.lite", {"EXPERT_ALLOWED": "org/other"}, "none of the models that are allowed"),
    "places that are none": ("experts.lite", {"EXPERT_DEVICES": "gpu"}, "EXPERT_DEVICES: 'gpu' is not MODEL=DEVICE"),
    "a GPU that is not there": ("experts.lite", {"EXPERT_DEVICES": "*=cuda"}, "there is no device cuda"),
}


@pytest.mark.parametrize(("module", "environment_or_factory", "message"), CASES.values(), ids=CASES)
async def test_invalid_configuration_is_logged_once_and_ends_the_process(
    module: str, environment_or_factory: Wrong, message: str, tmp_path: Path
) -> None:
    environment = environment_or_factory(tmp_path) if callable(environment_or_factory) else environment_or_factory
    async with started(tmp_path / "home", module, **environment) as process:
        status = await process.end()
        (error,) = process.complaints
        assert status == 1
        assert error["event"] == "cannot run"
        assert process.other == []
        assert message in error["error"]
        assert error["remedy"]
        assert SECRET not in str(process.log)


async def test_wrong_database_password_is_not_retried(postgres: str, tmp_path: Path) -> None:
    environment = {"ORCHESTRATOR_JOURNAL": postgres.replace(PASSWORD, SECRET)}
    async with started(tmp_path, "services.orchestrator", **environment) as process:
        assert await process.end() == 1
        (error,) = process.complaints
        assert "password authentication failed" in error["error"]
        assert SECRET not in str(process.log)
