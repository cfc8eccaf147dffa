"""Rendered manifests, read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

Document = dict[str, Any]

_TEMPLATES = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where each kind of workload keeps its pods."""

EXPERT = "hugginggpt.dev/expert"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Container:
    """A container of a pod."""

    workload: "Workload"
    spec: Document
    starts_first: bool
    """It is an init container."""

    def __str__(self) -> str:
        return f"{self.workload}, container {self.spec['name']}"

    @property
    def image(self) -> str:
        return str(self.spec["image"])

    @property
    def is_ours(self) -> bool:
        return "hugginggpt/" in self.image

    @property
    def ports(self) -> dict[str, int]:
        """By name; a port without one has its number as its name."""
        return {
            port.get("name", str(port["containerPort"])): port["containerPort"] for port in listed(self.spec, "ports")
        }

    @property
    def mounts(self) -> dict[str, Document]:
        """By path."""
        return {mount["mountPath"]: mount for mount in listed(self.spec, "volumeMounts")}

    @property
    def gpus(self) -> int:
        return int(self.spec.get("resources", {}).get("limits", {}).get(GPU, 0))


@dataclass(frozen=True)
class Workload:
    """Whatever makes pods."""

    document: Document

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def spec(self) -> Document:
        return dict(self.document.get("spec", {}))

    @property
    def template(self) -> Document:
        found: Any = self.document
        for key in _TEMPLATES[self.kind]:
            found = found[key]
        return dict(found)

    @property
    def pod(self) -> Document:
        return dict(self.template["spec"])

    @property
    def labels(self) -> dict[str, str]:
        """Of its pods."""
        return dict(self.template.get("metadata", {}).get("labels") or {})

    @property
    def stays(self) -> bool:
        """It runs until it is stopped."""
        return self.kind in {"Deployment", "StatefulSet", "DaemonSet"}

    @property
    def is_expert(self) -> bool:
        return self.labels.get(EXPERT) == "true"

    @property
    def is_ours(self) -> bool:
        return any(container.is_ours for container in self.containers)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """All of them, those that start first included."""
        first = [Container(self, spec, starts_first=True) for spec in listed(self.pod, "initContainers")]
        return (*first, *(Container(self, spec, starts_first=False) for spec in listed(self.pod, "containers")))

    @property
    def lasting(self) -> tuple[Container, ...]:
        """Those that run as long as the pod."""
        return tuple(container for container in self.containers if not container.starts_first)

    @property
    def volumes(self) -> dict[str, Document]:
        """By name; those that a StatefulSet claims for each pod included."""
        claimed = {claim["metadata"]["name"]: claim for claim in listed(self.spec, "volumeClaimTemplates")}
        return {volume["name"]: volume for volume in listed(self.pod, "volumes")} | claimed

    @property
    def wants_gpu(self) -> bool:
        return any(container.gpus for container in self.containers)


@dataclass(frozen=True)
class House:
    """All documents of one rendering."""

    documents: tuple[Document, ...]

    @classmethod
    def read(cls, text: str) -> "House":
        """From YAML: thousands of lines, which only the loader in C reads at once."""
        return cls(tuple(document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document))

    def of(self, *kinds: str) -> Iterator[Document]:
        return (document for document in self.documents if document["kind"] in kinds)

    def named(self, kind: str, name: str) -> Document | None:
        return next((document for document in self.of(kind) if document["metadata"]["name"] == name), None)

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        return tuple(Workload(document) for document in self.of(*_TEMPLATES))

    @property
    def staying(self) -> tuple[Workload, ...]:
        return tuple(workload for workload in self.workloads if workload.stays)

    @property
    def containers(self) -> tuple[Container, ...]:
        return tuple(container for workload in self.workloads for container in workload.containers)

    def selected(self, selector: Mapping[str, Any]) -> tuple[Workload, ...]:
        """Workloads whose pods a selector means."""
        return tuple(workload for workload in self.workloads if selects(selector, workload.labels))


def listed(document: Mapping[str, Any], key: str) -> list[Document]:
    """A list that may be absent or null."""
    return list(document.get(key) or [])


def called(document: Document) -> str:
    """What a document is called in complaints."""
    return f"{document['kind']}/{document['metadata']['name']}"


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector, written out, matches; an empty one matches everything."""
    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(_holds(expression, labels) for expression in listed(selector, "matchExpressions"))


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"no operator of selectors: {expression['operator']}")
