"""Package sources that test images take from this machine."""

import pytest

from tests.containers.images import debian_mirror, pip_options

SOURCES = """\
bookworm-security main http://security.mirror.example/debian-security/
bookworm contrib http://contrib.mirror.example/debian/
bookworm main http://mirror.example/debian/
"""


def test_debian_mirror_is_the_source_of_the_main_component() -> None:
    assert debian_mirror(SOURCES) == "http://mirror.example/debian/"


def test_debian_mirror_without_matching_source_raises() -> None:
    with pytest.raises(RuntimeError, match="no source for bookworm main"):
        debian_mirror("trixie main http://mirror.example/debian/\n")


def test_pip_options_leave_out_indices_on_this_machine() -> None:
    settings = {"extra-index-url": "file:///srv/simple https://mirror.example/simple"}
    assert "--build-arg=PIP_EXTRA_INDEX_URL=https://mirror.example/simple" in list(pip_options(settings))
