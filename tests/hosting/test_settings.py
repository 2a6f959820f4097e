"""Settings come from the environment once, and complaints about them show no value."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from shoal_hosting.settings import read_settings
from shoal_hosting.startup import StartupRefused


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


def test_settings_are_read_with_their_types() -> None:
    settings = read_settings(Example, "SHOAL_", GOOD)
    assert settings == Example(port=8443, data=Path("/data"))


def test_settings_cannot_be_changed_afterwards() -> None:
    settings = read_settings(Example, "SHOAL_", GOOD)
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


def test_an_empty_variable_counts_as_unset() -> None:
    settings = read_settings(Example, "SHOAL_", GOOD | {"SHOAL_LOG_LEVEL": ""})
    assert settings.log_level == "info"
    with pytest.raises(StartupRefused, match="SHOAL_PORT must be set"):
        read_settings(Example, "SHOAL_", GOOD | {"SHOAL_PORT": ""})


def test_a_missing_variable_is_named_with_what_it_is_for() -> None:
    with pytest.raises(StartupRefused, match="SHOAL_PORT must be set: the port to listen on"):
        read_settings(Example, "SHOAL_", {"SHOAL_DATA": "/data"})


def test_a_misspelt_variable_is_refused_not_ignored() -> None:
    with pytest.raises(StartupRefused, match="SHOAL_PROT is not a setting"):
        read_settings(Example, "SHOAL_", GOOD | {"SHOAL_PROT": "1"})


def test_the_compose_files_own_variable_is_let_pass() -> None:
    read = read_settings(Example, "SHOAL_", GOOD | {"SHOAL_TAG": "latest"})
    assert read == read_settings(Example, "SHOAL_", GOOD)


def test_all_complaints_come_at_once_and_none_shows_a_value() -> None:
    wrong = {"SHOAL_PORT": "s3cret", "SHOAL_LOG_LEVEL": "s3cret", "SHOAL_PASSWORD": "s3cret"}
    with pytest.raises(StartupRefused) as refusal:
        read_settings(Example, "SHOAL_", wrong | {"SHOAL_TYPO": "s3cret"})
    for name in ("SHOAL_PORT", "SHOAL_DATA", "SHOAL_LOG_LEVEL", "SHOAL_PASSWORD", "SHOAL_TYPO"):
        assert name in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    assert refusal.value.__suppress_context__


def test_a_model_that_could_change_is_the_callers_fault() -> None:
    class Loose(BaseModel):
        port: int = 1

    with pytest.raises(ValueError, match="frozen"):
        read_settings(Loose, "SHOAL_", {})


def test_a_prefix_must_end_a_word() -> None:
    with pytest.raises(ValueError, match="underscore"):
        read_settings(Example, "SHOAL", {})
