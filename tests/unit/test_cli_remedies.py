"""Remedies of errors on the command line."""

from gateway.cli.errors import remedy
from gateway.client import InvalidRequest, NotFound


def test_local_error_keeps_its_own_remedy() -> None:
    error = InvalidRequest("pipe is not a regular file", code="FILE", remedy="copy its content to a regular file")
    assert remedy(error) == "copy its content to a regular file"


def test_gateway_error_gets_remedy_of_the_command_line() -> None:
    error = NotFound("there is no file file_1", code="FILE", remedy="see GET /v1/files", status=404)
    assert remedy(error) == "check the id; the file may have been deleted"
