"""Real containers for tests: images built from the project's own files, networks, peers; whatever is made is removed.

Images stay for the next time: `podman images --filter label=hugginggpt.tests` lists them.
"""

import pytest

CONTAINERS = [
    pytest.mark.containers,
    pytest.mark.slow,
    pytest.mark.needs("podman", "buildah", "runc", "mmdebstrap", "ip"),
    pytest.mark.timeout(900),  # the first of them builds the images
]
"""What a module of such tests has for its pytestmark."""
