"""Containers for tests: images built from the project's Dockerfiles, networks, PostgreSQL and S3.

Containers and networks are removed at the end of the session. Images stay as a cache: `podman images --filter
label=hugginggpt.tests` lists them.
"""

import pytest

CONTAINERS = [
    pytest.mark.containers,
    pytest.mark.slow,
    pytest.mark.needs("podman", "buildah", "runc", "mmdebstrap", "ip"),
    pytest.mark.timeout(900),  # the first test builds the images
]
"""The pytestmark of a module with container tests."""
