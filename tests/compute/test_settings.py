"""Shares leave the machine to be added up only over TLS; any other address is refused."""

import pytest

from shoal_compute.settings import ComputeSettings
from shoal_kit.settings import read_settings
from shoal_kit.startup import StartupRefused

OTHERS = {"SHOAL_PARTY": "/p", "SHOAL_CONSORTIUM": "/c", "SHOAL_DATA": "/d", "SHOAL_PORT": "1"}


@pytest.mark.parametrize(
    "where",
    [
        "tcp://dask.example:8786",
        "tcp://10.0.0.7:8786",
        "tcp://localhost.example:8786",
        "tcp://127.0.0.1@dask.example:8786",
        "tcp://[::2]:8786",
        "tcp://0.0.0.0:8786",
        "dask.example:8786",
        "tls://",
        "process",
    ],
)
def test_what_would_send_shares_in_clear_is_refused_in_a_sentence(where: str) -> None:
    with pytest.raises(StartupRefused, match=r"SHOAL_SUMMING is wrong: .*use tls://") as why:
        read_settings(ComputeSettings, OTHERS | {"SHOAL_SUMMING": where})
    assert "dask.example" not in str(why.value)
    assert "^" not in str(why.value)
