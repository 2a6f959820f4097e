"""Settings come from the environment once, and complaints about them show no value."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from shoal_kit.settings import read_settings
from shoal_kit.startup import StartupRefused


class Example(BaseModel):
    model_config = ConfigDict(frozen=True)

    port: int = Field(ge=1, le=65535, description="the port to listen on")
    data: Path
    log_level: Literal["info", "debug"] = "info"
    password: SecretStr | None = None

    @field_validator("password")
    @classmethod
    def long_enough(cls, password: SecretStr | None) -> SecretStr | None:
        if password is not None and len(password.get_secret_value()) < 8:
            raise ValueError(f"too short: {password.get_secret_value()}")
        return password


GOOD = {"SHOAL_PORT": "8443", "SHOAL_DATA": "/data", "HOME": "/root", "SHOALS": "fish"}


def test_a_misspelt_variable_is_refused_not_ignored() -> None:
    with pytest.raises(StartupRefused, match="SHOAL_PROT is not a setting"):
        read_settings(Example, GOOD | {"SHOAL_PROT": "1"})


def test_all_complaints_come_at_once_and_none_shows_a_value() -> None:
    wrong = {"SHOAL_PORT": "s3cret", "SHOAL_LOG_LEVEL": "s3cret", "SHOAL_PASSWORD": "s3cret"}
    with pytest.raises(StartupRefused) as refusal:
        read_settings(Example, wrong | {"SHOAL_TYPO": "s3cret"})
    for name in ("SHOAL_PORT", "SHOAL_DATA", "SHOAL_LOG_LEVEL", "SHOAL_PASSWORD", "SHOAL_TYPO"):
        assert name in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__suppress_context__
