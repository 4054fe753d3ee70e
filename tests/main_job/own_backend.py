"""A package that is its own build backend, so that its build needs nothing from an index."""

PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "1"
"""
_WRITE_WHEEL = """\
import os, zipfile
def write_wheel(folder, file, text):
    name = "{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr(file, text)
        about = "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1\\n"
        wheel.writestr("{name}-1.dist-info/METADATA", about)
        wheel.writestr("{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("{name}-1.dist-info/RECORD", "")
    return name
def get_requires_for_build_editable(config_settings=None):
    return []
get_requires_for_build_wheel = get_requires_for_build_editable
def build_editable(folder, config_settings=None, metadata_directory=None):
"""
_ALSO = "build_wheel = build_editable\n"


def backend(name: str, build: str) -> str:
    """The text of its backend.py. `build`: the code of the build, which ends in `write_wheel`."""
    lines = "".join(f"    {line}\n" for line in build.splitlines())
    return f"{_WRITE_WHEEL.replace('{name}', name)}{lines}{_ALSO}"
