"""Thirty realistic ssh configs by name, with the exact bytes of the file."""

from pathlib import Path

from tests.cases import read_cases

PLAIN = read_cases(Path(__file__).with_name("configs.txt"))[1:]
USUAL = dict(PLAIN)["usual"].encode() + b"\n"
HUGE = b"".join(
    b"Host h%d\n  HostName 10.%d.%d.%d\n  Port %d\n" % (n, n >> 16, n >> 8 & 255, n & 255, 1024 + n)
    for n in range(20_000)
)
CONFIGS: dict[str, bytes] = {
    **{name: f"{text}\n".encode() for name, text in PLAIN},
    "empty": b"",
    "one newline": b"\n",
    "no final newline": USUAL.rstrip(b"\n"),
    "CRLF": USUAL.replace(b"\n", b"\r\n"),
    "CRLF without an end": USUAL.replace(b"\n", b"\r\n").rstrip(b"\r\n"),
    "CRLF below the first line": b"# made on Linux\n" + USUAL.replace(b"\n", b"\r\n"),
    "tabs": USUAL.replace(b"    ", b"\t").replace(b" ", b"\t"),
    "ends inside a Host": b"Host gpu\n    HostName 10.1.2.3\n    Port 2222",
    "not UTF-8": b"# caf\xe9\nHost gpu\n  HostName 10.1.2.3\n",
    "form feeds and trailing blanks": b"\n\n  \nHost gpu  \x0c\n  HostName 10.1.2.3 \t \n\n\n",
    "twenty thousand hosts": HUGE,
}
