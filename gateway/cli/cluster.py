"""Checks of a deployment on Kubernetes, by read requests to its API server through kubectl."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.conformance.findings import Finding, ok, warning, wrong

Document = Mapping[str, Any]

TIMEOUT_SECONDS = 15
GPU = "nvidia.com/gpu"
MIN_DRIVER = 580
"""Of NVIDIA's driver: the images contain CUDA 13."""
MIN_CAPABILITY = (7, 5)
"""Compute capability of GPUs for which torch has kernels."""
PLACEHOLDER = "192.0.2.0/24"
"""Documentation addresses (RFC 5737), which the overlay replaces."""


class ClusterUnavailable(Exception):
    """A request to the API server failed; the message is kubectl's."""


class Cluster:
    """The API server of kubectl's current context. Only reads.

    Args:
        namespace: of the deployment.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def namespaced(self, group: str, kind: str) -> Sequence[Document]:
        """Objects of a kind in the namespace; none if the cluster does not know the kind.

        Args:
            group: path of the API group and version, such as apis/apps/v1.
            kind: plural, such as deployments.

        Raises:
            ClusterUnavailable: the request fails, or is not permitted.
        """
        return self._get(f"/{group}/namespaces/{self._namespace}/{kind}")

    def cluster_wide(self, group: str, kind: str) -> Sequence[Document]:
        """Objects of a kind that belong to no namespace; as `namespaced`."""
        return self._get(f"/{group}/{kind}")

    def _get(self, path: str) -> Sequence[Document]:
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterUnavailable("kubectl is not installed")
        command = [program, "get", "--raw", path, f"--request-timeout={TIMEOUT_SECONDS}s"]
        try:
            done = subprocess.run(  # noqa: S603  # a fixed command
                command, check=False, capture_output=True, text=True, timeout=2 * TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterUnavailable(f"no answer within {2 * TIMEOUT_SECONDS} s") from error
        if "(NotFound)" in done.stderr:
            return ()
        if done.returncode:
            raise ClusterUnavailable(done.stderr.strip() or f"kubectl ended with {done.returncode}")
        return list(json.loads(done.stdout).get("items") or ())


def cluster(namespace: str) -> Iterator[Finding]:
    """Checks Secrets, RuntimeClasses, nodes, weights, scalers, network policies and pods of a deployment."""
    api = Cluster(namespace)
    try:
        deployments = api.namespaced("apis/apps/v1", "deployments")
        if not deployments:
            yield wrong("cluster", f"no Deployment in the namespace {namespace}", "kubectl apply -k OVERLAY")
            return
        yield ok("cluster", f"{len(deployments)} Deployments in the namespace {namespace}")
        yield from _secrets(deployments, api.namespaced("api/v1", "secrets"))
        yield from _runtime_classes(deployments, api.cluster_wide("apis/node.k8s.io/v1", "runtimeclasses"))
        if any(_requests_gpu(each) for each in deployments):
            yield from _gpu_nodes(api.cluster_wide("api/v1", "nodes"))
        claims = api.namespaced("api/v1", "persistentvolumeclaims")
        yield from _weights(claims, api.namespaced("apis/batch/v1", "cronjobs"))
        yield from _scalers(deployments, api.namespaced("apis/keda.sh/v1alpha1", "scaledobjects"))
        yield from _policies(api.namespaced("apis/networking.k8s.io/v1", "networkpolicies"))
        yield from _pods(api.namespaced("api/v1", "pods"))
    except ClusterUnavailable as error:
        yield wrong("cluster", str(error), "check kubectl's context, and that it may read the namespace and nodes")


def _secrets(deployments: Sequence[Document], secrets: Sequence[Document]) -> Iterator[Finding]:
    """Secrets, and their keys, without which pods do not start."""
    existing = {_name(each): set(each.get("data") or ()) for each in secrets}
    needed: dict[str, set[str]] = {}
    for name, key in (each for deployment in deployments for each in _secret_references(_pod(deployment))):
        needed.setdefault(name, set()).update({key} if key else ())
    for name, keys in sorted(needed.items()):
        missing = ", ".join(sorted(keys - existing.get(name, set())))
        remedy = f"kubectl create secret generic {name}; k8s/README.md lists its keys"
        if name not in existing:
            yield wrong(f"secret {name}", "does not exist", remedy)
        elif missing:
            yield wrong(f"secret {name}", f"has no key {missing}", remedy)
        else:
            yield ok(f"secret {name}", "exists")


def _secret_references(pod: Document) -> Iterator[tuple[str, str]]:
    """Names and keys of required Secrets; an empty key means the whole Secret."""
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        references = [each.get("secretRef") for each in container.get("envFrom") or ()]
        references += [(each.get("valueFrom") or {}).get("secretKeyRef") for each in container.get("env") or ()]
        yield from ((each["name"], each.get("key", "")) for each in references if each and not each.get("optional"))
    for volume in pod.get("volumes") or ():
        source = volume.get("secret") or {}
        if source and not source.get("optional"):
            yield source["secretName"], ""


def _runtime_classes(deployments: Sequence[Document], classes: Sequence[Document]) -> Iterator[Finding]:
    existing = {_name(each) for each in classes}
    for name in sorted({_pod(each)["runtimeClassName"] for each in deployments if "runtimeClassName" in _pod(each)}):
        if name in existing:
            yield ok(f"RuntimeClass {name}", "exists")
        else:
            yield wrong(f"RuntimeClass {name}", "does not exist", "remove the component gpu/runtime-class")


def _gpu_nodes(nodes: Sequence[Document]) -> Iterator[Finding]:
    with_gpus = [node for node in nodes if int(node["status"].get("allocatable", {}).get(GPU, 0))]
    if not with_gpus:
        yield warning(
            "GPU nodes", f"none offers {GPU}", "add a node with a GPU and a device plugin, if none is started"
        )
    for node in with_gpus:
        problems = list(_node_problems(node))
        found = f"{node['status']['allocatable'][GPU]} GPUs"
        check = f"node {_name(node)}"
        if problems:
            yield wrong(check, "; ".join((found, *problems)), "k8s/components/gpu/README.md lists what nodes need")
        else:
            yield ok(check, found)


def _node_problems(node: Document) -> Iterator[str]:
    """What keeps experts from running on a GPU node, by its taints and by labels of GPU feature discovery."""
    labels = node["metadata"].get("labels") or {}
    driver = labels.get("nvidia.com/cuda.driver-version.major") or labels.get("nvidia.com/cuda.driver.major")
    if driver and int(driver) < MIN_DRIVER:
        yield f"its driver is {driver}, older than {MIN_DRIVER}"
    capability = tuple(int(labels.get(f"nvidia.com/gpu.compute.{part}", "-1")) for part in ("major", "minor"))
    if -1 not in capability and capability < MIN_CAPABILITY:
        yield f"its GPU has compute capability {capability[0]}.{capability[1]}, below 7.5"
    for taint in node["spec"].get("taints") or ():
        if taint["key"] != GPU and taint["effect"] != "PreferNoSchedule":
            yield f"experts do not tolerate its taint {taint['key']}"


def _weights(claims: Sequence[Document], jobs: Sequence[Document]) -> Iterator[Finding]:
    for claim in claims:
        if _name(claim) == "models" and claim["status"].get("phase") != "Bound":
            remedy = "name a storage class with ReadWriteMany, or use model-init"
            yield wrong("volume of weights", f"is {claim['status'].get('phase')}", remedy)
    for job in jobs:
        if not _name(job).startswith("prefetch-"):
            continue
        if finished := job.get("status", {}).get("lastSuccessfulTime"):
            yield ok(f"weights, {_name(job)}", f"downloaded at {finished}")
        else:
            remedy = f"kubectl logs --selector app.kubernetes.io/name={_name(job)}"
            yield warning(f"weights, {_name(job)}", "no run has finished", remedy)


def _scalers(deployments: Sequence[Document], scalers: Sequence[Document]) -> Iterator[Finding]:
    scaled = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}
    for deployment in deployments:
        labels = deployment["metadata"].get("labels") or {}
        if "hugginggpt.dev/scale-to-zero" in labels and _name(deployment) not in scaled:
            yield wrong(f"scaler {_name(deployment)}", "does not exist", "install KEDA, and apply the overlay again")
    for scaler in scalers:
        conditions = {each["type"]: each for each in scaler.get("status", {}).get("conditions") or ()}
        ready = conditions.get("Ready", {})
        if ready.get("status") == "True":
            yield ok(f"scaler {_name(scaler)}", "ready")
        else:
            found = ready.get("message") or "KEDA has not reported on it"
            yield wrong(
                f"scaler {_name(scaler)}", found, "check KEDA's log, and the address of Prometheus in the overlay"
            )


def _policies(policies: Sequence[Document]) -> Iterator[Finding]:
    if "deny-all" in map(_name, policies):
        yield ok("network policies", f"{len(policies)}")
    else:
        yield wrong("network policies", "none denies all traffic by default", "apply the overlay again")
    for policy in policies:
        if PLACEHOLDER in json.dumps(policy["spec"]):
            found = f"still allows the placeholder {PLACEHOLDER}"
            yield warning(f"policy {_name(policy)}", found, "set the block in the overlay")


def _pods(pods: Sequence[Document]) -> Iterator[Finding]:
    """Pods that do not start, with the reason."""
    for pod in pods:
        if reason := _pod_problem(pod.get("status") or {}):
            yield wrong(f"pod {_name(pod)}", reason, f"kubectl describe pod {_name(pod)}")


def _pod_problem(status: Document) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or "waits for a node")
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _requests_gpu(deployment: Document) -> bool:
    containers = _pod(deployment).get("containers") or ()
    return any(GPU in ((each.get("resources") or {}).get("limits") or {}) for each in containers)


def _pod(deployment: Document) -> Document:
    pod: Document = deployment["spec"]["template"]["spec"]
    return pod


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])
