"""The compose files fit services, images and command; no engine is needed to see it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel

from shoal_agent.settings import Settings as AgentSettings
from shoal_compute.settings import ComputeSettings
from shoal_holder.settings import Settings as VaultSettings
from shoal_kit.settings import read_settings
from shoal_service.running import ServiceSettings
from shoal_trainer.assembly import TrainerSettings
from tests.command.running import run

ROOT: Final = Path(__file__).parents[1]
EXAMPLES: Final = ROOT / "examples/compose"
COMPOSE: Final = (ROOT / "docker-compose.yml").read_text()
WHOLE: Final[dict[str, Any]] = yaml.safe_load(COMPOSE)
SERVICES: Final[dict[str, dict[str, Any]]] = WHOLE["services"]
SETTINGS: Final[Mapping[str, type[BaseModel]]] = {
    "shoal_compute": ComputeSettings,
    "shoal_aggregator": ServiceSettings,
    "shoal_trainer": TrainerSettings,
    "shoal_agent": AgentSettings,
    "shoal_holder": VaultSettings,
}
VARIABLE: Final = re.compile(r"\$\{(\w+)(?::[-+]([^}]*))?\}")
OURS: Final = [name for name, each in SERVICES.items() if each["image"].startswith("shoal-")]
UNSEEN: Final = {"prometheus-data", "grafana-data"}  # figures, which belong to no federation
ENVIRONMENTS: Final = {path.stem: path for path in EXAMPLES.glob("*.env")}


def given(path: Path | None) -> dict[str, str]:
    """Return the variables of a file for --env-file; none without one."""
    lines = [] if path is None else path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(value: object, variables: Mapping[str, str]) -> str:
    """Return a value as compose writes it into a container's environment."""
    return VARIABLE.sub(lambda found: variables.get(found[1]) or found[2] or "", str(value))


def dockerfile(service: str) -> list[str]:
    """Return the instructions of a service's image, each on one line."""
    path = ROOT / SERVICES[service]["build"]["dockerfile"]
    return path.read_text().replace("\\\n", " ").splitlines()


def image_environment(service: str) -> dict[str, str]:
    lines = [each.split()[1:] for each in dockerfile(service) if each.startswith("ENV ")]
    return dict(each.split("=", 1) for line in lines for each in line)


def command_of(service: str) -> list[str]:
    """Return what a service's container runs."""
    [last] = [each for each in dockerfile(service) if each.startswith("CMD ")]
    command = SERVICES[service].get("command") or yaml.safe_load(last.removeprefix("CMD "))
    return [str(each) for each in command]


def is_known(arguments: Sequence[str]) -> bool:
    """Tell whether the command `shoal` has these subcommands and options; values are not read."""
    return run(*arguments, "--help").exit_code == 0


@pytest.mark.parametrize("with_variables", [None, *ENVIRONMENTS])
@pytest.mark.parametrize("service", OURS)
def test_a_process_reads_each_variable_that_it_is_given(
    service: str, with_variables: str | None
) -> None:
    command = command_of(service)
    if command[:2] != ["python", "-m"]:
        used = re.findall(r"\$\{(\w+_STATE)", (EXAMPLES / "hand-out-keys.sh").read_text())
        assert set(SERVICES[service].get("environment", ())) <= set(used)
        return
    variables = given(ENVIRONMENTS[with_variables] if with_variables else None)
    own = SERVICES[service].get("environment", {}).items()
    environment = image_environment(service) | {n: filled(v, variables) for n, v in own}
    if command[2] == "shoal_holder":  # it listens nowhere: its image's are the agent's
        read_settings(AgentSettings, environment)
        environment = {
            n: v for n, v in environment.items() if n not in ("SHOAL_HOST", "SHOAL_PORT")
        }
    read_settings(SETTINGS[command[2]], environment)


@pytest.mark.parametrize("service", OURS)
def test_a_container_runs_a_command_that_there_is(service: str) -> None:
    command = command_of(service)
    if command[:2] == ["python", "-m"]:
        assert find_spec(f"{command[2]}.__main__") is not None
    elif command[0] == "shoal":
        assert is_known(command[1:])
    else:
        assert command == ["sh", "/examples/hand-out-keys.sh"]


def test_a_script_runs_commands_that_there_are() -> None:
    script = (EXAMPLES / "hand-out-keys.sh").read_text().replace("\\\n", " ")
    [line] = re.findall(r"^shoal ([^>]*)>", script, re.MULTILINE)
    assert is_known(shlex.split(line))
    assert not is_known(["quickstart", "/federation/all", "--no-such-option"])
    assert not is_known(["no-such-command"])


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """Volumes as the service `keys` mounts them, empty, and a `chown` for who is not root."""
    for volume in SERVICES["keys"]["volumes"]:
        source, target, *_ = volume.split(":")
        place = tmp_path / target.lstrip("/")
        if source.startswith("./"):
            place.symlink_to((ROOT / source).resolve())
        else:
            place.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "chown").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "chown").chmod(0o755)
    return tmp_path


def hand_out(trial: Path, name: str | None = None) -> str | None:
    """Do what `keys` does in a variant; return why it refuses, upon which nothing is given out."""
    variables = given(ENVIRONMENTS[name] if name else None)
    own = SERVICES["keys"]["environment"].items()
    state = {
        n: v.rpartition("+")[2].rstrip("}")
        for n, v in own
        if VARIABLE.findall(v)[0][0] in variables
    }
    path = f"{trial}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    handed = sorted((trial / "handout").rglob("*"))
    done = subprocess.run(
        ["sh", str(EXAMPLES / "hand-out-keys.sh"), str(trial)],
        env={"PATH": path, **state},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    assert sorted((trial / "handout").rglob("*")) == handed
    assert "sh examples/compose/trial.sh down" in done.stderr
    return done.stderr


@pytest.mark.parametrize("name", [None, *ENVIRONMENTS])
def test_one_command_starts_a_variant_unless_what_is_there_does_not_fit(
    trial: Path, name: str | None
) -> None:
    variant = [] if name is None else [name]
    with_file = [] if name is None else ["--env-file", f"examples/compose/{name}.env"]
    compose = ["docker", "compose", *with_file]
    check = [*compose, "run", "--rm", "--no-deps", "keys"]
    start = [*compose, "up", "--detach", "--scale", "trainer-crowds=2"]
    up = ["up", *variant, "--scale", "trainer-crowds=2"]
    assert done_by(trial, *up) == (0, [[*compose, "build"], check, start])
    # refused before anything is started or stopped
    assert done_by(trial, *up, failing="run") == (1, [[*compose, "build"], check])


def done_by(trial: Path, *words: str, failing: str = "nothing") -> tuple[int, list[list[str]]]:
    """Return how the trial's script ends, and what it has Compose do, which fails at a word."""
    log, docker = trial / "log", trial / "bin" / "docker"
    log.write_text("")
    asked = "import json, sys; print(json.dumps(['docker', *sys.argv[1:]]))"
    docker.write_text(
        f'#!/bin/sh\n{sys.executable} -c "{asked}" "$@" >> {log}\n'
        f'case " $* " in *" {failing} "*) exit 1 ;; esac\n'
    )
    docker.chmod(0o755)
    path = f"{trial}/bin:{os.environ['PATH']}"
    command = ["sh", str(EXAMPLES / "trial.sh"), *words]
    done = subprocess.run(command, env={"PATH": path}, capture_output=True, check=False)
    return done.returncode, [json.loads(line) for line in log.read_text().splitlines()]


def empty(directory: Path) -> None:
    for each in directory.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


@pytest.mark.slow
def test_keys_are_handed_out_once_and_again_over_what_is_there(trial: Path) -> None:
    assert hand_out(trial) is None
    assert (trial / "handout/vaults/hospital-a/holder.key").exists()
    assert not (trial / "handout/clients/hospital-a/holder.key").exists()
    before = {each: each.read_bytes() for each in (trial / "handout").rglob("*") if each.is_file()}
    assert hand_out(trial, "monitoring") is None
    assert {each: each.read_bytes() for each in before} == before


def test_keys_see_every_volume_with_state() -> None:
    seen = {each.split(":")[0] for each in SERVICES["keys"]["volumes"]}
    assert seen >= {each for each in WHOLE["volumes"] if each.endswith("-data")} - UNSEEN


def test_all_that_is_built_mounted_and_asked_for_is_there() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), (name, source)
            else:
                assert source in WHOLE["volumes"], (name, source)
        build = service.get("build")
        if isinstance(build, dict) and "dockerfile" in build:
            assert (ROOT / build.get("context", ".") / build["dockerfile"]).is_file(), name
        for other in service.get("depends_on", ()):
            assert other in SERVICES, (name, other)
    for service in OURS:
        for line in dockerfile(service):
            if line.startswith("COPY ") and "--from" not in line and "$" not in line:
                for source in line.split()[1:-1]:
                    assert (ROOT / source).exists(), (service, source)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_file_of_variables_sets_only_what_the_compose_file_reads(name: str) -> None:
    variables, own = given(ENVIRONMENTS[name]), {"COMPOSE_PROFILES"}
    assert variables.keys() - own <= {found[0] for found in VARIABLE.findall(COMPOSE)}
    profiles = {each for service in SERVICES.values() for each in service.get("profiles", ())}
    assert set(variables["COMPOSE_PROFILES"].split(",")) <= profiles


def _composes() -> bool:
    if shutil.which("docker") is None:
        return False
    probe = ["docker", "compose", "version"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.skipif("not _composes()", reason="there is no Compose here, with or without an engine")
def test_compose_takes_the_file(name: str) -> None:
    command = ["docker", "compose", "--env-file", str(ENVIRONMENTS[name]), "config", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
