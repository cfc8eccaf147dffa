"""Connection settings that the client rejects before connecting."""

import pytest

from gateway.client.connection import Connection
from gateway.client.errors import InvalidRequest


@pytest.mark.parametrize("key", ["hgpt_1\r", "hgpt_1\n", "hgpt 1", "hgpt_é"])
def test_key_with_invalid_character_is_rejected_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidRequest, match="the API key contains invalid characters") as caught:
        Connection.to(None, key, verify=True)
    assert "without spaces or line breaks" in caught.value.remedy
    assert "hgpt" not in str(caught.value)
