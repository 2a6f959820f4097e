"""What may happen to containers: being killed, paused, cut off, or out of disk; knows no round.

Each fault is looked at from inside the containers before its function returns, and each of these
raises `InVain` if it did not take effect. `put_out` ends all that is still burning.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from tests.containers.compose import Compose, docker
from tests.containers.waiting import InVain, until

PORT: Final = 8440
TOOLS: Final = "shoal-test-tools"  # built from files/tools.Dockerfile
_CONNECT: Final = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 2.5).close()
except OSError as error:
    print(type(error).__name__)
else:
    print("open")
"""
_BALLAST: Final = "/data/ballast"


class Fire:
    """Faults in one project's containers. `injected` counts them by kind."""

    def __init__(self, compose: Compose) -> None:
        self._compose = compose
        self.injected: Counter[str] = Counter()
        self._killed: set[str] = set()
        self._paused: set[str] = set()
        self._cut: set[str] = set()
        self._parted: set[str] = set()
        self._full: set[str] = set()

    def put_out(self) -> None:
        """End every fault that still lasts."""
        for service in list(self._paused):
            self.resume(service)
        for service in list(self._full):
            self.free(service)
        for service in list(self._killed):
            self.start(service)
        for service in list(self._cut):
            self.mend(service)
        for service in list(self._parted):
            self.rejoin(service)

    # Processes

    def crash(self, service: str) -> None:
        """Kill a service's process with SIGKILL; the restart policy brings it back."""
        before = self._restarts(service)
        pid = str(self._compose.inspect(service)["State"]["Pid"])
        self._tools("--pid", "host", "--cap-add", "KILL", command=f"kill -9 {pid}")
        until(f"{service} was restarted", lambda: self._restarts(service) > before)
        self.injected["crash"] += 1

    def kill(self, service: str) -> None:
        """Kill a service's container, which stays down until `start`."""
        docker("kill", self._compose.container(service))
        self._killed.add(service)
        until(f"{service} is down", lambda: not self._state(service)["Running"])
        self.injected["kill"] += 1

    def stop(self, service: str) -> None:
        """Tell a service to stop, and see that it did so by itself, in good order.

        A vault whose agent has stopped is started again, and may be killed in the midst of it.
        """
        is_vault = service.endswith("-vault")
        docker("stop", "--time", "2" if is_vault else "60", self._compose.container(service))
        self._killed.add(service)
        good = (0, 143, 137) if is_vault else (0,)
        if (status := self._state(service)["ExitCode"]) not in good:
            raise InVain(f"{service} did not stop in good order: status {status}")
        self.injected["stop"] += 1

    def start(self, service: str) -> None:
        """Start a service that was killed or stopped."""
        docker("start", self._compose.container(service))
        self._killed.discard(service)

    def refuses_to_start(self, service: str, why: str) -> None:
        """See that a service gave up starting, said why, and is tried again by the engine."""
        until(f"{service} was tried again", lambda: self._restarts(service) > 0)
        until(f"{service} says: {why}", lambda: why in self.log(service))

    def log(self, service: str) -> str:
        """Return all that a service has logged, over all of its lives."""
        return self._compose("logs", "--no-color", "--no-log-prefix", service)

    def pause(self, service: str) -> None:
        """Freeze all processes of a container: it takes connections and answers nothing."""
        self._paused.add(service)
        until(f"{service} is paused", lambda: self._pauses(service))
        self.injected["pause"] += 1

    def _pauses(self, service: str) -> bool:
        with suppress(RuntimeError):  # a kernel under load may fail to freeze all of it at once
            docker("pause", self._compose.container(service))
        return bool(self._state(service)["Paused"])

    def resume(self, service: str) -> None:
        """Let a paused container go on as if no time had passed."""
        if self._state(service)["Paused"]:
            docker("unpause", self._compose.container(service))
        self._paused.discard(service)

    def _state(self, service: str) -> dict[str, Any]:
        return dict(self._compose.inspect(service)["State"])

    def _restarts(self, service: str) -> int:
        return int(self._compose.inspect(service)["RestartCount"])

    # The network

    def cut_one_way(self, origin: str, *destinations: str) -> None:
        """Lose every packet of requests from `origin`; those of the others to it arrive.

        The rule is on the destination's port, so `origin` still answers whoever asks it.
        """
        rules = [self._rule("OUTPUT", "--destination", each) for each in destinations]
        self._filter(origin, *rules)
        self._expect(
            *((origin, each, "TimeoutError") for each in destinations),
            *((each, origin, "open") for each in destinations),
        )
        self.injected["one-way cut"] += 1

    def cut(self, one: str, *others: str) -> None:
        """Lose every packet of requests between `one` and each of the others."""
        self._filter(
            one,
            *(self._rule("OUTPUT", "--destination", other) for other in others),
            *(self._rule("INPUT", "--source", other) for other in others),
        )
        self._expect(
            *((one, other, "TimeoutError") for other in others),
            *((other, one, "TimeoutError") for other in others),
        )
        self.injected["two-way cut"] += 1

    def mend(self, service: str) -> None:
        """End the cuts that were made at `service`."""
        self._filter(service, "--flush")
        self._cut.discard(service)

    def part(self, service: str) -> None:
        """Take a container off the network: it can reach nobody, nor anybody it."""
        docker("network", "disconnect", self._network, self._compose.container(service))
        self._parted.add(service)
        self._expect((service, "observer", "gaierror"), ("observer", service, "gaierror"))
        self.injected["disconnection"] += 1

    def rejoin(self, service: str) -> None:
        """Put a container back on the network, perhaps at another address."""
        container = self._compose.container(service)
        docker("network", "connect", "--alias", service, self._network, container)
        self._parted.discard(service)
        self._expect(("observer", service, "open"))

    @property
    def _network(self) -> str:
        return f"{self._compose.project}_default"

    def _address(self, service: str) -> str:
        networks = self._compose.inspect(service)["NetworkSettings"]["Networks"]
        return str(networks[self._network]["IPAddress"])

    def _rule(self, chain: str, side: str, service: str) -> str:
        # only requests: answers come from this port, and go to one that the system chose
        packets = f"{side} {self._address(service)} --protocol tcp --dport {PORT}"
        return f"--append {chain} {packets} --jump DROP"

    def _filter(self, service: str, *rules: str) -> None:
        """Set rules in the container's own network name space, from a container beside it."""
        network = f"container:{self._compose.container(service)}"
        command = " && ".join(f"iptables {rule}" for rule in rules)
        self._tools("--network", network, "--cap-add", "NET_ADMIN", command=command)
        self._cut.add(service)

    def _expect(self, *outcomes: tuple[str, str, str]) -> None:
        """Wait until connections, (from, to, outcome) each, have these outcomes."""

        def connects(outcome: tuple[str, str, str]) -> None:
            origin, destination, expected = outcome
            until(
                f"a connection from {origin} to {destination} gives {expected}",
                lambda: self.connecting(origin, destination) == expected,
            )

        with ThreadPoolExecutor() as threads:
            list(threads.map(connects, outcomes))

    def connecting(self, origin: str, destination: str) -> str:
        """Return "open" if a container can connect to another one, or the error's name."""
        command = ("python", "-c", _CONNECT, destination, str(PORT))
        return self._compose.execute(origin, *command).strip()

    def _tools(self, *options: str, command: str) -> str:
        return docker("run", "--rm", *options, TOOLS, "sh", "-c", command)

    # Disks

    def fill(self, service: str) -> None:
        """Fill a service's data volume to the last byte, whether the service runs or not."""
        self._full.add(service)
        script = f"cat /dev/zero >>{_BALLAST} 2>/dev/null; df --output=avail /data | tail -n 1"
        if (left := self._at_volume(service, script).strip()) != "0":
            raise InVain(f"{service} has {left} KiB left")
        self.injected["full disk"] += 1

    def free(self, service: str) -> None:
        """Take away what `fill` wrote, whether the service runs or not."""
        self._at_volume(service, f"rm {_BALLAST}")
        self._full.discard(service)

    def _at_volume(self, service: str, script: str) -> str:
        mounts = self._compose.inspect(service)["Mounts"]
        [volume] = [each["Name"] for each in mounts if each["Destination"] == "/data"]
        return self._tools("--volume", f"{volume}:/data", command=script)
