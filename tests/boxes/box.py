"""One box: a Debian root file system in its own namespaces, with its own sshd."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.boxes import claims, net, places, provision
from tests.boxes.inside import folders_in, inside, put_owned
from tests.boxes.keys import fingerprint
from tests.boxes.kinds import OWN_BASH
from tests.boxes.proc import RigError, sh
from tests.boxes.provision import BoxSpec
from tests.boxes.startup import PATH

_Result = TypeVar("_Result")

_START_LIMIT = 60.0

# dpkg locks with fcntl: a struct flock of type F_WRLCK (same layout on x86-64 and aarch64).
_HOLDER = """
use Fcntl;
$0 = "unattended-upgr";
open(my $lock, ">>", "/var/lib/dpkg/lock-frontend");
my $whole = pack("s s x4 q q l x4", F_WRLCK, 0, 0, 0, 0);
fcntl($lock, F_SETLKW, $whole) or exit 1;
open(my $told, ">", "/run/dpkg-lock-held");
close($told);
select(undef, undef, undef, shift);
"""
_HOLD = """
rm -f /run/dpkg-lock-held
setsid perl -e "$1" "$2" </dev/null >/dev/null 2>&1 &
for _ in {1..100}; do [ ! -e /run/dpkg-lock-held ] || { echo $!; exit; }; sleep 0.05; done
exit 1
"""
_KILL_SSHD = """
for p in /proc/[0-9]*; do
  read -r name 2>/dev/null <$p/comm && [ "$name" = sshd ] && kill -9 "${p#/proc/}" && killed+=("$p")
done
for p in "${killed[@]}"; do
  while read -r _ _ state _ 2>/dev/null <$p/stat && [ "$state" != Z ]; do sleep 0.01; done
done
"""


class CommandError(RigError):
    """A command in a box exited non-zero; see `rc`, `stdout` and `stderr`."""

    def __init__(self, what: str, rc: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{what}: exit {rc}\n{(stderr or stdout)[-3000:]}")
        self.rc = rc
        self.stdout = stdout
        self.stderr = stderr


class RigBox:
    """A live box, made by Rig.start(); each fault that it can have is a method."""

    port = 22

    def __init__(self, spec: BoxSpec) -> None:
        self._spec = spec
        self.kind = spec.kind.name
        self.name = spec.name
        self.user = spec.kind.user
        self.home = spec.kind.home
        self.address = spec.subnet.address(spec.index)
        self.identity = spec.identity
        self.log = spec.folder / "console"
        self._outer: subprocess.Popen[str] | None = None
        self._init = 0
        self._is_lossy = False
        provision.lay_out(spec)
        self._learn_host_key()
        self.power_on()

    def __repr__(self) -> str:
        return f"<RigBox {self.name} {self.host_string}>"

    # -- how to reach it

    @property
    def host_string(self) -> str:
        """user@address:port."""
        return f"{self.user}@{self.address}:{self.port}"

    @property
    def known_fingerprint(self) -> str:
        """SHA256:… of the host key that sshd shows now."""
        return fingerprint(self._public)

    @property
    def host_key(self) -> str:
        """The host's public key as in known_hosts: type and base64."""
        return " ".join(self._public.split()[:2])

    def ssh_command(self, *command: str) -> list[str]:
        """Return the OpenSSH command line for this box, which trusts only its host key."""
        known = self._spec.folder / "known_hosts"
        known.write_text(f"{self.address} {self.host_key}\n")
        options = {
            "BatchMode": "yes",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": "5",
            "KexAlgorithms": "curve25519-sha256",  # a seventh of the default's CPU time
        }
        argv = ["ssh", "-F", "none", "-i", str(self.identity)]
        for name, value in options.items():
            argv += ["-o", f"{name}={value}"]
        return [*argv, f"{self.user}@{self.address}", *command]

    # -- reading and changing it without ssh

    @property
    def root(self) -> Path:
        """Its live file system as seen from this machine, while it is on."""
        return Path(f"/proc/{self._alive()}/root")

    def run(
        self,
        command: str | Sequence[str],
        *,
        user: str | None = None,
        check: bool = True,
        stdin: str | None = None,
        timeout: float = 120,
    ) -> str:
        """Run a command in the box as root or `user`, not through ssh; return its standard output.

        A string is a bash script. Raises CommandError if it exits non-zero, unless check=False.
        """
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        who = user or "root"
        home = "/root" if who == "root" else f"/home/{who}"
        env = {"HOME": home, "USER": who, "PATH": f"{PATH}:{OWN_BASH}"}
        env |= {"LC_ALL": "C.UTF-8", "TERM": "dumb"}
        if who != "root":
            clean = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items())]
            argv = ["/usr/sbin/runuser", "-u", who, "--", *clean, *argv]
        done = self._inside(
            partial(
                subprocess.run,
                argv,
                env=env,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                errors="surrogateescape",
                timeout=timeout,
                check=False,
            ),
            argv[-1],
        )
        if check and done.returncode != 0:
            raise CommandError(
                f"{self.name}: {argv[-1][:200]}", done.returncode, done.stdout, done.stderr
            )
        return done.stdout

    def read(self, path: str) -> str:
        """A file's text."""
        return self._inside(partial(Path(path).read_text, errors="surrogateescape"), path)

    def exists(self, path: str) -> bool:
        """Return whether a path exists, whatever its type."""
        return self._inside(partial(os.path.lexists, path), path)

    def real(self, path: str) -> str:
        """Return the path with every symlink resolved."""
        return self._inside(lambda: os.path.realpath(path), path)

    def folders(self, path: str) -> list[str]:
        """Return the sorted names of the folders in a folder."""
        return self._inside(partial(folders_in, path), path)

    def write(self, path: str, text: str, *, mode: str = "0644", owner: str = "root") -> None:
        """Write a file, and create its folder if needed."""
        self._inside(partial(put_owned, Path(path), text, int(mode, 8), owner), path)

    def listing(self, paths: Sequence[str] = ("/",)) -> str:
        """List everything under `paths`: mode, owner, size, times, and a checksum per file.

        Two equal listings prove that nothing changed in between. /proc, /sys and /dev are left
        out, and what every login writes: sshd's log, the message of the day and the socket of a
        provider's auto-tmux.
        """
        script = r"""
        skip=(-path /proc -o -path /sys -o -path /dev -o -path /var/log/sshd.log
          -o -path /run/motd.dynamic -o -path '/tmp/tmux-*/default')
        touched=(-path /run -o -path '/tmp/tmux-*')
        find "$@" \( "${skip[@]}" \) -prune -o ! -type d -printf '%p %M %u:%g %s %T@ %C@ %l\n' \
          -o \( "${touched[@]}" \) -printf '%p %M %u:%g\n' \
          -o -printf '%p %M %u:%g %T@\n' | LC_ALL=C sort
        find "$@" \( "${skip[@]}" \) -prune -o -type f -print0 | LC_ALL=C sort -z |
          xargs -0 -r sha256sum
        """
        return self.run(["bash", "-c", script, "bash", *paths], timeout=600)

    # -- its power

    def power_on(self) -> None:
        """Start it (again) on the file system it has; returns when sshd answers."""
        if self._outer is not None:
            raise RigError(f"{self.name} is on already")
        spec = self._spec
        provision.clear_work(spec)
        with self.log.open("a") as console:
            self._outer = subprocess.Popen(
                [
                    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork"),
                    *("bash", str(places.SCRIPTS / "box.sh"), spec.name, str(spec.folder)),
                    *(":".join(map(str, spec.layers)), f"{self.address}/24"),
                    *(spec.subnet.gateway, str(spec.mtu), *spec.kind.mounts, "--"),
                    *(f"{name}={value}" for name, value in spec.environ.items()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                text=True,
                start_new_session=True,  # only the owner gets Ctrl-C
            )
        try:
            assert self._outer.stdin is not None
            assert self._outer.stdout is not None
            said = self._outer.stdout.readline().strip()
            if not said:
                raise RigError(f"{self.name} did not start:\n{self.log.read_text()[-2000:]}")
            self._init = int(said)
            net.plug_in(spec.subnet, spec.index, self._init)
            self._outer.stdin.write("go\n")
            self._outer.stdin.flush()
            self._outer.stdout.readline()  # its card is up: connecting earlier costs a second
            self.wait_for_sshd()
        except BaseException:
            self.power_off()
            raise
        facts = {"name": self.name, "kind": self.kind, "host": self.host_string, "pid": self._init}
        claims.note_box(spec.subnet, spec.index, facts)

    def power_off(self) -> None:
        """Pull the plug: all its processes die immediately, the file system stays."""
        outer, self._outer = self._outer, None
        if outer is None:
            return
        assert outer.stdin is not None
        assert outer.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            outer.stdin.close()
        try:
            outer.wait(timeout=10)
        except subprocess.TimeoutExpired:
            outer.kill()
            outer.wait()
        outer.stdout.close()
        if self._is_lossy:
            self.loss(0)
        net.unplug(self._spec.subnet, self._spec.index)

    def keep(self, layer: Path) -> None:
        """Power it off and keep what it wrote, to start others from: `Rig.start(on=layer)`."""
        self.power_off()
        sh(["cp", "-a", str(self._spec.folder / "upper"), str(layer)])

    def stop(self) -> None:
        """Destroy it, its file system included."""
        self.power_off()
        claims.note_box(self._spec.subnet, self._spec.index, None)
        shutil.rmtree(self._spec.folder, ignore_errors=True)

    @property
    def is_on(self) -> bool:
        """Whether its processes are alive."""
        return self._outer is not None and self._outer.poll() is None

    # -- its link

    def cut(self) -> None:
        """Pull its cable."""
        net.switch(self._spec.subnet, self._spec.index, on=False)

    def heal(self) -> None:
        """Plug its cable in again; also ends blackhole() and loss()."""
        if self._is_lossy:
            self.loss(0)
        net.switch(self._spec.subnet, self._spec.index, on=True)

    def blackhole(self, port: int | None = None) -> None:
        """Silently drop every packet to and from it, or only those of `port`."""
        self._drop(100, port)

    def unblackhole(self) -> None:
        """Let packets through again."""
        self.loss(0)

    def loss(self, percent: float) -> None:
        """Drop this percentage of the packets in each direction (steps of 0.1)."""
        self._drop(percent)

    def _drop(self, percent: float, port: int | None = None) -> None:
        self._is_lossy = True
        net.drop(self._spec.subnet, self._spec.index, percent, port)
        self._is_lossy = percent > 0

    def limit(self, mb_s: float) -> None:
        """Limit its link to this many MB a second in each direction; 0 removes the limit."""
        net.limit(self._spec.subnet, self._spec.index, self._alive(), mb_s)

    # -- its package manager and its disk

    def hold_dpkg_lock(self, seconds: float = 3600) -> int:
        """Hold dpkg's lock in it, as another package run would; return the holder's pid there."""
        return int(self.run(["bash", "-c", _HOLD, "bash", _HOLDER, str(seconds)]))

    def fill_disk(self, leave_mb: int) -> None:
        """Fill its disk until `leave_mb` MB are free; only for a box with its own disk."""
        self.run(
            f"free=$(df -m --output=avail / | tail -n 1); take=$((free - {leave_mb}));"
            "[ $take -le 0 ] || fallocate -l ${take}M /ballast"
        )

    def empty_disk(self) -> None:
        """Free what fill_disk() took."""
        self.run("rm -f /ballast")

    def show_card(self, library: Path, scenario: str) -> None:
        """Put a card into it: its driver's library (`tests/nvml`), and what that answers."""
        place = self.root / f"usr/lib/{os.uname().machine}-linux-gnu" / library.name
        if not place.exists():
            shutil.copy(library, place)
        self.write("/etc/nvml-scenario", scenario)

    # -- its sshd

    def new_host_key(self) -> None:
        """Give it another host key, as a new box at the same address has."""
        key = provision.make_host_key(self._spec)
        self.write(provision.HOST_KEY, key.read_text(), mode="0600")
        self.write(f"{provision.HOST_KEY}.pub", key.with_suffix(".pub").read_text())
        self._learn_host_key()
        self.kill_sshd()
        self.start_sshd()

    def kill_sshd(self) -> None:
        """kill -9 the listener and every login; the processes that they started live on.

        Returns when they are gone: a dying sshd still holds the port.
        """
        self.run(_KILL_SSHD)

    def start_sshd(self) -> None:
        """Start the listener again; returns when it answers."""
        assert self._outer is not None
        assert self._outer.stdin is not None
        self._told_by_sshd.write_text("")
        self._outer.stdin.write("sshd\n")
        self._outer.stdin.flush()
        self.wait_for_sshd()

    def wait_for_sshd(self, limit: float = _START_LIMIT) -> None:
        """Wait until sshd listens; raises RigError after `limit` seconds or if the box died."""
        spec, end = self._spec, time.monotonic() + limit
        while self.is_on and time.monotonic() < end:
            if self._listens() and net.answers(spec.subnet, spec.index):
                return
            time.sleep(0.005)
        raise RigError(f"{self.name}: no sshd:\n{self.log.read_text()[-2000:]}")

    # -- internals

    def _listens(self) -> bool:
        """Return whether sshd says that it listens. Connecting would start a process each time."""
        with contextlib.suppress(FileNotFoundError):
            return self._told_by_sshd.stat().st_size > 0
        return False

    @property
    def _told_by_sshd(self) -> Path:
        """The pid file that sshd writes once it listens; it is emptied before a start."""
        return self.root / "run/sshd.pid"

    def _alive(self) -> int:
        if not self.is_on:
            raise RigError(f"{self.name} is off")
        return self._init

    def _inside(self, work: Callable[[], _Result], what: str) -> _Result:
        try:
            return inside(self._alive(), work)
        except OSError as error:
            raise CommandError(f"{self.name}: {what[:200]}", 127, "", str(error)) from error

    def _learn_host_key(self) -> None:
        self._public = (self._spec.folder / "host_key.pub").read_text()
