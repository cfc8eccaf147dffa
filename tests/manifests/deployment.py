"""Rendered manifests, parsed: documents, workloads and containers."""

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
"""Path of the pod template by kind of workload."""

RAY_JOB = "RayJob"

EXPERT = "hugginggpt.dev/expert"
GPU = "nvidia.com/gpu"


@dataclass(frozen=True)
class Container:
    """A container of a pod."""

    workload: "Workload"
    spec: Document
    is_init: bool
    """True for an init container."""

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
        """Port numbers by name; an unnamed port has its number as its name."""
        return {
            port.get("name", str(port["containerPort"])): port["containerPort"] for port in get_list(self.spec, "ports")
        }

    @property
    def mounts(self) -> dict[str, Document]:
        """Volume mounts by path."""
        return {mount["mountPath"]: mount for mount in get_list(self.spec, "volumeMounts")}

    @property
    def gpus(self) -> int:
        return int(self.spec.get("resources", {}).get("limits", {}).get(GPU, 0))


@dataclass(frozen=True)
class Workload:
    """A document that creates pods: Deployment, StatefulSet, DaemonSet, Job, CronJob or Pod; or a part of a RayJob."""

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
        for key in _TEMPLATES.get(self.kind, ("spec", "template")):
            found = found[key]
        return dict(found)

    @property
    def pod(self) -> Document:
        return dict(self.template["spec"])

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its pods."""
        return dict(self.template.get("metadata", {}).get("labels") or {})

    @property
    def is_long_running(self) -> bool:
        """True unless it ends by itself, as a Job does."""
        return self.kind in {"Deployment", "StatefulSet", "DaemonSet"}

    @property
    def is_expert(self) -> bool:
        return self.labels.get(EXPERT) == "true"

    @property
    def is_ours(self) -> bool:
        return any(container.is_ours for container in self.containers)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Init containers, then the others."""
        first = [Container(self, spec, is_init=True) for spec in get_list(self.pod, "initContainers")]
        return (*first, *(Container(self, spec, is_init=False) for spec in get_list(self.pod, "containers")))

    @property
    def main_containers(self) -> tuple[Container, ...]:
        """Containers that run as long as the pod, without init containers."""
        return tuple(container for container in self.containers if not container.is_init)

    @property
    def volumes(self) -> dict[str, Document]:
        """Volumes by name, including the claim templates of a StatefulSet."""
        claimed = {claim["metadata"]["name"]: claim for claim in get_list(self.spec, "volumeClaimTemplates")}
        return {volume["name"]: volume for volume in get_list(self.pod, "volumes")} | claimed

    @property
    def requests_gpu(self) -> bool:
        return any(container.gpus for container in self.containers)


@dataclass(frozen=True)
class Manifests:
    """All documents of one rendered overlay."""

    documents: tuple[Document, ...]

    @classmethod
    def read(cls, text: str) -> "Manifests":
        """Parses YAML with the C loader: the pure Python loader takes seconds for an overlay."""
        return cls(tuple(document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document))

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        return (document for document in self.documents if document["kind"] in kinds)

    def find(self, kind: str, name: str) -> Document | None:
        return next((document for document in self.of_kind(kind) if document["metadata"]["name"] == name), None)

    @cached_property
    def workloads(self) -> tuple[Workload, ...]:
        parts = (part for job in self.of_kind(RAY_JOB) for part in _parts_of(job))
        return tuple(Workload(document) for document in (*self.of_kind(*_TEMPLATES), *parts))

    @property
    def long_running(self) -> tuple[Workload, ...]:
        return tuple(workload for workload in self.workloads if workload.is_long_running)

    @property
    def containers(self) -> tuple[Container, ...]:
        return tuple(container for workload in self.workloads for container in workload.containers)

    def workloads_matching(self, selector: Mapping[str, Any]) -> tuple[Workload, ...]:
        """Workloads whose pods a label selector matches."""
        return tuple(workload for workload in self.workloads if selects(selector, workload.labels))


def _parts_of(job: Document) -> Iterator[Document]:
    """A RayJob's submitter, head and groups of workers, as documents with one pod template each."""
    cluster = job["spec"]["rayClusterSpec"]
    templates = {
        "submitter": job["spec"]["submitterPodTemplate"],
        "head": cluster["headGroupSpec"]["template"],
        **{group["groupName"]: group["template"] for group in cluster["workerGroupSpecs"]},
    }
    for name, template in templates.items():
        metadata = {**job["metadata"], "name": f"{job['metadata']['name']}-{name}"}
        yield {**job, "metadata": metadata, "spec": {"template": template}}


def get_list(document: Mapping[str, Any], key: str) -> list[Document]:
    """The list at a key; empty if it is absent or null."""
    return list(document.get(key) or [])


def display_name(document: Document) -> str:
    """Kind and name of a document, for messages."""
    return f"{document['kind']}/{document['metadata']['name']}"


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches the labels; an empty selector matches everything."""
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(
        matches_expression(expression, labels) for expression in get_list(selector, "matchExpressions")
    )


def matches_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether one expression of a selector matches the labels; NotIn also matches where the label is absent."""
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
    raise ValueError(f"unknown selector operator: {expression['operator']}")
