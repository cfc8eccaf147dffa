"""The engine of a job: Daft on this machine, or on a Ray cluster."""

import daft

from experts.bulk.job import NATIVE, RAY
from experts.bulk.stage import Cluster
from services.common.errors import Unavailable


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
