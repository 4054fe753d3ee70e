"""Make a conda environment from an environment.yml with rattler. Needs `rattler` and `yaml`.

    onbox conda.environment FILE PREFIX CACHE PIP PYTHON

The file's pip section is written to PIP, one word a line; PYTHON is the version to install, "" for
the file's own. An existing environment is deleted once the new one is solved. Prints events of
progress, and lines for the log. Exit code 3: no environment meets all requirements of the file, the
file can't be read, or one of its channels does not exist.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .. import step_report
from ..step_report import tell

UNSATISFIABLE = 3
USUAL_CHANNEL = "conda-forge"
DEFAULT_CHANNELS = ("main", "r")
"""The channels that `defaults` stands for, as they are named below the usual channel alias."""
SETTINGS = (
    *("/etc/conda/.condarc", "/etc/conda/condarc", "~/.config/conda/.condarc", "~/.conda/.condarc"),
    *("~/.condarc", "~/.mambarc"),
)
"""conda's settings files on the box, of which a later one wins; $CONDARC is read last."""
ACTIVATE = """\
# What conda's `activate` does, for this environment alone. Read by sh.
unset VIRTUAL_ENV
export CONDA_PREFIX={prefix} CONDA_DEFAULT_ENV={prefix}
case $PATH in {prefix}/bin:*) ;; *) export PATH={prefix}/bin:"$PATH" ;; esac
{variables}for each in {prefix}/etc/conda/activate.d/*.sh; do
  [ ! -r "$each" ] || . "$each"
done
"""


class CondaFile(NamedTuple):
    """The contents of an environment.yml."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]
    pip: tuple[str, ...]
    variables: dict[str, str]


class BoxChannels(NamedTuple):
    """The box's own channel settings."""

    channels: tuple[str, ...] = ()
    alias: str = ""
    defaults: tuple[str, ...] = DEFAULT_CHANNELS
    named: dict[str, str] = {}  # noqa: RUF012 - never changed


def parse_file(document: object) -> CondaFile:
    """Read the parsed YAML of an environment.yml. Raises ValueError."""
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise ValueError("it has no list of dependencies")
    specs: list[str] = []
    pip: list[str] = []
    for each in document["dependencies"]:
        if isinstance(each, dict):
            for line in texts(each.get("pip")):
                pip += pip_words(line)
        else:
            specs.append(str(each))
    return CondaFile(
        texts(document.get("channels")),
        tuple(specs),
        tuple(pip),
        {str(name): str(value) for name, value in mapping(document.get("variables")).items()},
    )


def pip_words(line: str) -> list[str]:
    """Split a line of options in the pip section; a requirement stays whole, with its marker."""
    line = re.sub(r"(^|\s)#.*", "", line).strip()
    return shlex.split(line) if line.startswith("-") else [line] if line else []


def read_box(documents: list[object], environ: dict[str, str]) -> BoxChannels:
    """Merge conda's settings files, of which a later one wins; variables win over all of them."""
    merged: dict[str, Any] = {}
    for document in documents:
        merged.update(mapping(document))
    alias = environ.get("CONDA_CHANNEL_ALIAS") or str(merged.get("channel_alias") or "")
    named = environ.get("CONDA_CHANNELS", "").split(",")
    return BoxChannels(
        tuple(filter(None, named)) or texts(merged.get("channels")),
        alias,
        texts(merged.get("default_channels")) or DEFAULT_CHANNELS,
        {str(k): str(v) for k, v in mapping(merged.get("custom_channels")).items()},
    )


def channels_of(file: CondaFile, box: BoxChannels) -> list[str]:
    """Return the channels to ask: the file's, the box's or else conda-forge, those in specs."""
    own = [] if "nodefaults" in file.channels else [*(box.channels or (USUAL_CHANNEL,))]
    found = [name for name in [*file.channels, *own] if name != "nodefaults"]
    found += [spec.partition("::")[0] for spec in file.specs if "::" in spec]
    return list(dict.fromkeys(where for name in found for where in addresses(name, box)))


def addresses(name: str, box: BoxChannels) -> Iterator[str]:
    """Yield the channels that a name stands for on this box."""
    if name == "defaults":
        yield from box.defaults
    elif name in box.named:
        yield box.named[name].rstrip("/") + "/" + name
    else:
        yield name


def texts(value: object) -> tuple[str, ...]:
    """Return the strings of a list, or a single string, as a tuple."""
    listed = value if isinstance(value, list) else [value]
    return tuple(each for each in listed if isinstance(each, str))


def mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def activation(prefix: str, variables: dict[str, str]) -> str:
    """Return the script that activates the environment in a shell."""
    known = [name for name in variables if re.fullmatch(r"[A-Za-z_]\w*", name)]
    lines = "".join(f"export {name}={shlex.quote(variables[name])}\n" for name in known)
    return ACTIVATE.format(prefix=shlex.quote(prefix), variables=lines)


class DownloadReporter:
    """A reporter for rattler that prints how far the downloads are."""

    def __init__(self) -> None:
        self.done: dict[int, int] = {}
        self.total: dict[int, int] = {}
        self.said = 0.0

    def on_download_progress(self, which: int, progress: int, total: int | None) -> None:
        """Record how many bytes of one package have arrived."""
        self.done[which], self.total[which] = progress, total or progress
        if time.monotonic() - self.said >= 0.5:
            self.said = time.monotonic()
            done, total = sum(self.done.values()), sum(self.total.values())
            tell(f"progress done={done} total={total} unit=bytes")

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Ignore rattler's other callbacks."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_: 0


async def make(file: CondaFile, box: BoxChannels, prefix: Path, cache: Path, python: str) -> None:
    """Solve, then make the environment. Raises rattler's exceptions."""
    import rattler

    config = rattler.ChannelConfig(box.alias) if box.alias else rattler.ChannelConfig()
    channels = [rattler.Channel(name, config) for name in channels_of(file, box)]
    print("channels: " + " ".join(each.base_url for each in channels))
    specs = [with_channel_address(spec, config, box) for spec in file.specs]
    specs.append(f"python {python}.*" if python else "python")
    # The system's certificates, as for uv here: a company adds its own to those.
    client = rattler.Client.from_config(rattler.Config.from_toml('tls-root-certs = "system"'))
    records = await rattler.solve(
        channels,
        [rattler.MatchSpec(spec) for spec in specs],
        gateway=rattler.Gateway(cache_dir=cache / "repodata", client=client),
        virtual_packages=rattler.VirtualPackage.detect(rattler.VirtualPackageOverrides.from_env()),
    )
    for record in sorted(records, key=lambda each: each.name.normalized):
        print(f"{record.name.normalized} {record.version} {record.build}")
    sys.stdout.flush()
    if prefix.exists():
        shutil.rmtree(prefix)
    await rattler.install(
        records,
        prefix,
        cache_dir=cache / "pkgs",
        execute_link_scripts=True,
        reporter=DownloadReporter(),
        client=client,
    )


def with_channel_address(spec: str, config: object, box: BoxChannels) -> str:
    """Replace the channel's name in `CHANNEL::SPEC` with its address on this box."""
    import rattler

    name, _, rest = spec.rpartition("::")
    if not name:
        return spec
    address = next(addresses(name, box))
    return f"{rattler.Channel(address, config).base_url}::{rest}"


def main() -> NoReturn:
    step_report.step = "python"
    code = make_all(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # rattler's threads may still run, and would end a normal exit by a signal


def make_all(words: list[str]) -> int:
    """Return the exit code: 0, or 1 after a line that says why."""
    import yaml
    from rattler.exceptions import SolverError

    name, prefix, cache, pip, python = words
    settings = [*SETTINGS, os.environ.get("CONDARC", "")]
    there = [Path(each).expanduser() for each in settings if each]
    try:
        file = parse_file(yaml.safe_load(Path(name).read_text("utf-8")))
        settled = [yaml.safe_load(each.read_text("utf-8")) for each in there if each.is_file()]
        box = read_box(settled, dict(os.environ))
        asyncio.run(make(file, box, Path(prefix), Path(cache), python))
    except SolverError as error:
        print(f"No solution found: {error}")
        return UNSATISFIABLE
    except (yaml.YAMLError, ValueError) as error:
        print(f"{name} can't be read: {error}")
        return UNSATISFIABLE
    except Exception as error:  # rattler's errors have no common base class
        said = f"conda: {type(error).__name__}: {error}"
        # The rest would make a channel that does not exist look like one that doesn't answer.
        is_missing = "could not find subdir" in said
        print(said.splitlines()[0] if is_missing else said)
        return UNSATISFIABLE if is_missing else 1
    script = Path(prefix, "etc", "conda", "activate.sh")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(activation(prefix, file.variables), "utf-8")
    Path(prefix, "bin", "activate").symlink_to("../etc/conda/activate.sh")
    Path(prefix, ".gitignore").write_text("*\n", "utf-8")
    Path(pip).write_text("".join(f"{word}\n" for word in file.pip), "utf-8")
    return 0
