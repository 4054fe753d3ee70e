"""What a build or a program of an environment looks for and the box lacks, and Debian's package
that brings it. `warn_of_lacking` finds libraries before a training dies for want of one."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator

from ..step_report import caution, log

_TABLE = """
build-essential: gcc g++ cc c++ compiler make x86_64-linux-gnu-gcc x86_64-linux-gnu-g++
cargo: cargo rustc
cmake: cmake
curl: curl
default-jre: java
ffmpeg: ffmpeg ffprobe
gfortran: gfortran f77
git: git
google-perftools: libtcmalloc.so.4
libaio-dev: libaio.so.1 libaio.h
libasound2: libasound.so.2
libboost-all-dev: boost/version.hpp boost/python.hpp
libcairo2: libcairo.so.2
libcairo2-dev: cairo.h cairo
libdbus-1-3: libdbus-1.so.3
libegl1: libEGL.so.1
libegl-dev: EGL/egl.h egl
libeigen3-dev: Eigen/Core Eigen/Dense
libffi-dev: ffi.h libffi
libfontconfig1: libfontconfig.so.1
libfreetype6: libfreetype.so.6
libgl1: libGL.so.1
libgl-dev: GL/gl.h gl
libglew-dev: GL/glew.h glew
libglib2.0-0: libglib-2.0.so.0 libgthread-2.0.so.0 libgobject-2.0.so.0
libglu1-mesa: libGLU.so.1
libgomp1: libgomp.so.1
libhdf5-dev: hdf5.h hdf5
libice6: libICE.so.6
libjpeg-dev: jpeglib.h
libmagic1: libmagic.so.1
libnuma1: libnuma.so.1
libopenblas-dev: cblas.h libopenblas.so.0 openblas
libopengl0: libOpenGL.so.0
libopenmpi-dev: mpicc mpicxx mpi.h MPI
libosmesa6-dev: GL/osmesa.h libOSMesa.so.8
libportaudio2: libportaudio.so.2
libpq-dev: pg_config libpq-fe.h
libpq5: libpq.so.5
libsm6: libSM.so.6
libsndfile1: libsndfile.so.1 libsndfile.so sndfile
libssl-dev: openssl/ssl.h openssl/opensslv.h
libx11-6: libX11.so.6
libx11-dev: X11/Xlib.h
libxcb1: libxcb.so.1
libxext6: libXext.so.6
libxml2-dev: libxml/xpath.h libxml/xmlversion.h
libxrender1: libXrender.so.1
libxslt1-dev: libxslt/xslt.h xslt-config
ninja-build: ninja
openmpi-bin: mpirun mpiexec libmpi.so.40 libmpi.so.12
patchelf: patchelf
pkg-config: pkg-config
portaudio19-dev: portaudio.h
protobuf-compiler: protoc
python3-dev: Python.h
swig: swig swig4.0
unzip: unzip
wget: wget
zlib1g-dev: zlib.h
"""
PACKAGES = {
    name: package
    for package, _, names in (line.partition(": ") for line in _TABLE.split("\n"))
    for name in names.split()
}
"""By the name of a program, a header, a library, or what CMake and pkg-config call it."""
LIBRARIES = {name: package for name, package in PACKAGES.items() if ".so" in name}
_BRINGS = {
    "libgl1": ("libx11-6", "libxcb1", "libxext6"),
    "libsm6": ("libice6",),
    "libxext6": ("libx11-6", "libxcb1"),
    "libxrender1": ("libx11-6", "libxcb1"),
}
"""What each of these packages needs itself."""

_NAME = r"['\"`\u2018]?([\w./+-]{1,60})['\"\u2019]?"
_LACKS = (
    rf"fatal error: {_NAME}: No such file|{_NAME}: cannot open shared object file"
    rf"|(?:command|execute) {_NAME}(?: failed)?: No such file"
    rf"|No such file or directory: {_NAME}|: {_NAME}: (?:command )?not found"
    rf"|OSError: {_NAME} (?:library )?not found|Could (?:NOT|not) find (?:program )?{_NAME}"
    rf"|No working C\+\+ compiler found[^(]*\(None, {_NAME}|Failed to find C (compiler)"
    r"|RuntimeError: Unsupported (compiler)"
    rf"|No package {_NAME} found|Dependency {_NAME} not found|Error: {_NAME} executable not found"
    r"|(?i:\b(cmake|ninja|swig)\b[\w ]{0,20} (?:must be installed|is not installed|not found))"
)

_NO_PROGRAM = r"\\r.?: No such file|\^M: bad interpreter|cannot execute: required file not found"
"""Of a script whose first line (`#!`) names no program that is there, as bash and env say it."""


def lacking(text: str) -> tuple[str, str] | None:
    """Return what the box lacks by the last line of `text` that says so, and its package."""
    for found in reversed([*re.finditer(_LACKS, text)]):
        name = next(filter(None, found.groups()), "")
        for each in (name, name.lower()):
            if each in PACKAGES:
                return name, PACKAGES[each]
    return None


def advice(text: str) -> str:
    """Return what to do about what the box lacks, or a script's CRLF; "" where `text` doesn't say
    so."""
    found = lacking(text)
    if not found:
        why = "The script's first line ends in CRLF, as of Windows, or names what the box lacks"
        mend = "sed -i 's/\\r$//' FILE makes it LF"
        return f"{why}: {mend}" if re.search(_NO_PROGRAM, text) else ""
    return f"The box lacks {found[0]}: Debian's {found[1]} brings it (packages: [{found[1]}])"


def needed_libraries(path: str) -> list[str]:
    """Return the shared libraries that a file of ELF's 64 bits names (DT_NEEDED); elf(5)."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            return []
        (start,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        parts = [struct.unpack_from("<IIQQQQ", data, start + size * at) for at in range(count)]
        at, length = next((part[2], part[5]) for part in parts if part[0] == 2)
        entries = [*struct.iter_unpack("<QQ", data[at : at + length // 16 * 16])]
        table = dict(entries)[5]
        base = next(
            part[2] + table - part[3]
            for part in parts
            if part[0] == 1 and part[3] <= table < part[3] + part[5]
        )
        names = [base + value for tag, value in entries if tag == 1]
        return [data[at : data.find(b"\0", at)].decode() for at in names]


def missing_libraries(site: str) -> Iterator[str]:
    """Yield those of the table that modules below `site` need, and neither it nor the box has."""
    import ctypes

    needed, brought = set(), set()
    for folder, folders, files in os.walk(site):
        # These bring theirs, or a driver does.
        folders[:] = [name for name in folders if name not in ("torch", "nvidia", "triton")]
        for name in (name for name in files if ".so" in name):
            brought.add(name)
            try:
                needed.update(needed_libraries(os.path.join(folder, name)))
            except (OSError, ValueError, ArithmeticError, LookupError, StopIteration, struct.error):
                continue
    for name in sorted(needed & LIBRARIES.keys() - brought):
        try:
            ctypes.CDLL(name)
        except OSError:
            yield name


def warn_of_lacking(site: str) -> None:
    """Warn of each package that is to be installed, so that modules below `site` have what they
    need."""
    missing = list(missing_libraries(site))
    log(*(f"{name}: not on this box; Debian's {LIBRARIES[name]} brings it" for name in missing))
    wanted = {LIBRARIES[name] for name in missing}
    for package in sorted(wanted.difference(*(_BRINGS[each] for each in wanted & _BRINGS.keys()))):
        caution(f"lacks-{package}")
