"""What a client will not even try to connect with."""

import pytest

from gateway.client.connection import Connection
from gateway.client.errors import InvalidRequest


@pytest.mark.parametrize("key", ["hgpt_1\r", "hgpt_1\n", "hgpt 1", "hgpt_é"])
def test_a_key_with_a_stray_character_is_refused_and_not_told(key: str) -> None:
    with pytest.raises(InvalidRequest, match="the API key cannot be one") as caught:
        Connection.to(None, key, verify=True)
    assert "a carriage return" in caught.value.remedy
    assert "hgpt" not in str(caught.value)
