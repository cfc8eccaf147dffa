"""Writes tests/manifests/extensions/ from packages with upstream's schemas: python -m tests.manifests.sources.

Needs pip and npm, with access to their registries. To renew: raise the versions in PACKAGES, run it, and run
tests/unit/test_manifests_schemas.py.
"""

import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tests.manifests.schemas import EXTENSIONS, file_name
from tests.manifests.sources import compiled_validators, pydantic_models


@dataclass(frozen=True)
class Package:
    """A package that contains schemas of one API group, and the project whose schemas they are."""

    project: str
    name: str
    version: str
    license: str
    module: str
    """Path in the package: of the pydantic models; of a compiled validator, with the kind as {kind}."""
    api_version: str
    kinds: tuple[str, ...]

    @property
    def is_npm(self) -> bool:
        return self.name.startswith("@")

    @property
    def description(self) -> str:
        registry = "npm" if self.is_npm else "PyPI"
        return (
            f"Spec of {self.project} (Apache-2.0), read from the package {self.name} {self.version} "
            f"({registry}, {self.license}) by python -m tests.manifests.sources"
        )


PACKAGES = (
    Package(
        project="KEDA 2.20.2",
        name="cloudcoil-models-keda",
        version="2.20.2.1",
        license="Apache-2.0",
        module="cloudcoil/models/keda/v1alpha1.py",
        api_version="keda.sh/v1alpha1",
        kinds=("ScaledObject",),
    ),
    Package(
        project="cert-manager 1.21.1",
        name="cloudcoil-models-cert-manager",
        version="1.21.1.1",
        license="Apache-2.0",
        module="cloudcoil/models/cert_manager/v1.py",
        api_version="cert-manager.io/v1",
        kinds=("Certificate", "Issuer"),
    ),
    Package(
        project="prometheus-operator 0.93.1",
        name="cloudcoil-models-prometheus-operator",
        version="0.93.1.1",
        license="Apache-2.0",
        module="cloudcoil/models/prometheus_operator/v1.py",
        api_version="monitoring.coreos.com/v1",
        kinds=("PodMonitor", "PrometheusRule"),
    ),
    Package(
        project="Gateway API 1.5 or newer",
        name="@kubernetes-models/gateway-api",
        version="2.0.0",
        license="MIT",
        module="package/_schemas/IoK8sSigsGatewayApiApisV1{kind}Spec.js",
        api_version="gateway.networking.k8s.io/v1",
        kinds=("Gateway", "HTTPRoute", "GRPCRoute"),
    ),
)


def main() -> None:
    for package in PACKAGES:
        with TemporaryDirectory() as folder:
            _unpack(package, Path(folder))
            for kind in package.kinds:
                path = Path(folder) / package.module.format(kind=kind)
                schema = (
                    compiled_validators.read_schema(path)
                    if package.is_npm
                    else pydantic_models.read_schema(path.read_text(encoding="utf-8"), kind)
                )
                content = {"$comment": package.description, **schema}
                target = EXTENSIONS / file_name(package.api_version, kind)
                target.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


def _unpack(package: Package, folder: Path) -> None:
    """Downloads a package and unpacks it. A wheel is only read: it may be for a newer Python than this one."""
    if package.is_npm:
        command = ["npm", "pack", "--pack-destination", str(folder), f"{package.name}@{package.version}"]
    else:
        requirement = f"{package.name}=={package.version}"
        python = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.14"]
        command = [sys.executable, "-m", "pip", "download", *python, "--dest", str(folder), requirement]
    subprocess.run(command, check=True)
    for archive in list(folder.iterdir()):
        if archive.suffix == ".whl":
            with ZipFile(archive) as wheel:
                wheel.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")


if __name__ == "__main__":
    main()
