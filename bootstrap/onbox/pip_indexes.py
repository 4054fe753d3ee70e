"""Print the package indexes that this box's pip is set to, as settings of uv: NAME TAB VALUE.

Mirrors and company networks are set up for pip; uv does not read pip's settings.
Python 3.6 and its standard library only, since it runs on whatever Python a box has.
"""

import os
import re
import sys

# pip's documented order (User Guide, "Configuration"): what comes later wins.
FILES = (
    "/etc/xdg/pip/pip.conf",
    "/etc/pip.conf",
    "~/.pip/pip.conf",
    "~/.config/pip/pip.conf",
    os.path.join(sys.prefix, "pip.conf"),
    os.environ.get("PIP_CONFIG_FILE", ""),
)

# pip's name -> uv's variable, and uv's separator between several values.
UV_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}


def pip_setting(name: str) -> str:
    """Return pip's setting `name` from its files and its environment; "" if not set."""
    import configparser  # late: this machine reads the names of settings alone

    value = ""
    for file in FILES:
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(file), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in ("global", "install"):
            value = parser.get(section, name, fallback=value)
    return os.environ.get("PIP_" + name.upper().replace("-", "_"), value).strip()


def box_index(fallback: str) -> str:
    """Return uv's own setting, else pip's, else pip's built-in default, else the fallback."""
    own = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    return own or pip_setting("index-url") or built_in() or fallback


def built_in() -> str:
    """Return the index built into this box's pip, read from its source: faster than running pip."""
    for folder in [*sys.path, "/usr/lib/python3/dist-packages"]:
        try:
            with open(os.path.join(folder, "pip/_internal/models/index.py")) as file:
                found = re.search(r'PyPI = PackageIndex\(\s*"([^"]+)"', file.read())
        except OSError:
            continue
        if found:
            return found.group(1).rstrip("/") + "/simple"
    return ""


def main() -> None:
    """Print each setting that pip has."""
    for name, (variable, between) in UV_SETTINGS.items():
        value = between.join(pip_setting(name).split())
        if value:
            print(variable + "\t" + value)
            if name == "extra-index-url":
                # pip looks into every index and takes the best version.
                print("UV_INDEX_STRATEGY\tunsafe-best-match")
