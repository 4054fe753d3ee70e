"""Make a conda environment of an environment.yml, by rattler. Runs where `rattler` and `yaml` are.

    conda.py FILE PREFIX CACHE PIP PYTHON

What the file asks of pip is written to PIP, a word a line; PYTHON is the version to have, "" for
the file's own. An environment that is there goes once everything of the new one is known. Printed
are `progress DONE TOTAL` in bytes, and lines for the log. Exit code 3: no environment can be all
that the file asks for, or it names no channel that is there.
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
from typing import Any, NamedTuple

UNSATISFIABLE = 3
USUAL_CHANNEL = "conda-forge"
DEFAULT_CHANNELS = ("main", "r")
"""What `defaults` stands for, by the names that the usual alias has for them."""
SETTINGS = (
    *("/etc/conda/.condarc", "/etc/conda/condarc", "~/.config/conda/.condarc", "~/.conda/.condarc"),
    *("~/.condarc", "~/.mambarc"),
)
"""Where the box says which channels it has, the last word last; then $CONDARC."""
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
    """What an environment.yml says."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]
    pip: tuple[str, ...]
    variables: dict[str, str]


class BoxChannels(NamedTuple):
    """What the box says of channels."""

    channels: tuple[str, ...] = ()
    alias: str = ""
    defaults: tuple[str, ...] = DEFAULT_CHANNELS
    named: dict[str, str] = {}  # noqa: RUF012 - never changed


def parse_file(document: object) -> CondaFile:
    """What the YAML of an environment.yml means. Raises ValueError."""
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise ValueError("it has no list of dependencies")
    specs, pip = list[str](), list[str]()
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
    """A line of its pip section, as words for uv and pip; they take a marker with its spaces."""
    line = re.sub(r"(^|\s)#.*", "", line).strip()
    return shlex.split(line) if line.startswith("-") else [line] if line else []


def read_box(documents: list[object], environ: dict[str, str]) -> BoxChannels:
    """What settings of conda and variables say, the last word last."""
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
    """The channels to ask: the file's, then the box's, or the usual one where it has none."""
    own = [] if "nodefaults" in file.channels else [*(box.channels or (USUAL_CHANNEL,))]
    found = [name for name in [*file.channels, *own] if name != "nodefaults"]
    found += [spec.partition("::")[0] for spec in file.specs if "::" in spec]
    return list(dict.fromkeys(where for name in found for where in addresses(name, box)))


def addresses(name: str, box: BoxChannels) -> Iterator[str]:
    """What a channel's name stands for on this box."""
    if name == "defaults":
        yield from box.defaults
    elif name in box.named:
        yield box.named[name].rstrip("/") + "/" + name
    else:
        yield name


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list, or one text."""
    listed = value if isinstance(value, list) else [value]
    return tuple(each for each in listed if isinstance(each, str))


def mapping(value: object) -> dict[Any, Any]:
    """A mapping, or an empty one."""
    return value if isinstance(value, dict) else {}


def activation(prefix: str, variables: dict[str, str]) -> str:
    """The file that a shell reads to be in the environment."""
    known = [name for name in variables if re.fullmatch(r"[A-Za-z_]\w*", name)]
    lines = "".join(f"export {name}={shlex.quote(variables[name])}\n" for name in known)
    return ACTIVATE.format(prefix=shlex.quote(prefix), variables=lines)


class DownloadReporter:
    """Hears of the downloads, and prints how far they are."""

    def __init__(self) -> None:
        self.done: dict[int, int] = {}
        self.total: dict[int, int] = {}
        self.said = 0.0

    def on_download_progress(self, which: int, progress: int, total: int | None) -> None:
        """So many bytes of one package are here."""
        self.done[which], self.total[which] = progress, total or progress
        if time.monotonic() - self.said >= 0.5:
            self.said = time.monotonic()
            print(f"progress {sum(self.done.values())} {sum(self.total.values())}", flush=True)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """It hears of everything else too."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_: 0


async def make(file: CondaFile, box: BoxChannels, prefix: Path, cache: Path, python: str) -> None:
    """Solve, then make the environment. Raises what rattler raises."""
    import rattler

    config = rattler.ChannelConfig(box.alias) if box.alias else rattler.ChannelConfig()
    channels = [rattler.Channel(name, config) for name in channels_of(file, box)]
    print("channels: " + " ".join(each.base_url for each in channels))
    specs = [where_from(spec, config, box) for spec in file.specs]
    specs.append(f"python {python}.*" if python else "python")
    # As uv does here: a company's certificates are the system's.
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


def where_from(spec: str, config: object, box: BoxChannels) -> str:
    """`CHANNEL::SPEC` with the channel's address, as this box has it."""
    import rattler

    name, _, rest = spec.rpartition("::")
    if not name:
        return spec
    address = next(addresses(name, box))
    return f"{rattler.Channel(address, config).base_url}::{rest}"


def main(words: list[str]) -> int:
    """Make it, and say what of it is pip's."""
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
    except Exception as error:  # rattler's errors have no common name
        said = f"conda: {type(error).__name__}: {error}"
        # A channel that is not there is none that doesn't answer, as the rest would say.
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


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # rattler's threads may still be at work, and end a usual exit by a signal
