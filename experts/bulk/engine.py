"""The engine of a job: Daft on this machine, or on a Ray cluster."""

import re
from importlib.util import find_spec

import daft

from experts.bulk.stage import Cluster
from services.common.errors import FailedPrecondition, InvalidRequest, Unavailable

NATIVE, RAY = "native", "ray"
_ADDRESS = re.compile(r"(ray://)?[^\s/:]+:\d+")


def check_runner(runner: str) -> None:
    """Checks the runner of a job, without connecting to it.

    Raises:
        InvalidRequest: there is no such runner.
        FailedPrecondition: Ray is not installed.
    """
    if runner not in {NATIVE, RAY} and not _ADDRESS.fullmatch(runner):
        raise InvalidRequest(
            f"{runner!r} is no runner", remedy="use native, ray for a cluster on this machine, or ray://HOST:PORT"
        )
    if runner != NATIVE and find_spec("ray") is None:
        raise FailedPrecondition("Ray is not installed", remedy="install the extra bulk-ray of hugginggpt")


def connect(runner: str) -> Cluster | None:
    """Makes an engine the one that runs frames.

    Args:
        runner: "native"; "ray" for a cluster that this process starts; or ray://HOST:PORT or HOST:PORT of one.

    Returns:
        The cluster; None for this machine alone.

    Raises:
        Unavailable: the cluster does not answer.
    """
    if runner == NATIVE:
        daft.set_runner_native()
        return None
    import ray

    try:
        ray.init(None if runner == RAY else runner, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise Unavailable(
            f"the Ray cluster {runner} does not answer: {str(error).partition(chr(10))[0]}",
            remedy="check its address and that it runs",
        ) from error
    daft.set_runner_ray()
    resources = ray.cluster_resources()
    machines = [node for node in ray.nodes() if node["Alive"]]
    return Cluster(int(resources.get("CPU", 1)), int(resources.get("GPU", 0)), len(machines))
