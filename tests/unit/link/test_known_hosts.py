"""known_hosts files: which keys they name for a host."""

import subprocess
from pathlib import Path

from bootstrap.link.record import read_known_hosts
from tests.sshd import fingerprint, keygen


def test_a_host_matches_known_hosts_lines_by_pattern_port_and_hashed_name(tmp_path: Path) -> None:
    keys = [keygen(tmp_path / f"k{number}") for number in range(6)]
    lines = [" ".join(k.with_name(f"{k.name}.pub").read_text().split()[:2]) for k in keys]
    path = tmp_path / "known_hosts"
    path.write_text(
        "# a comment\n\nrubbish\nhalf ssh-ed25519\nbad ssh-ed25519 !!!\n"
        f"plain.example,other {lines[0]}\n"
        f"*.example,!not.example {lines[1]} a comment\n"
        f"@cert-authority *.example {lines[2]}\n"
        f"plain.example {lines[3]}\n@revoked plain.example {lines[3]}\n"
        f"[plain.example]:2200 {lines[4]}\n"
        f"|1|x|y {lines[5]}\n|1| {lines[5]}\n"
    )
    hashed = tmp_path / "hashed"
    hashed.write_text(f"secret.test {lines[5]}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], check=True, capture_output=True)
    assert "secret" not in hashed.read_text()

    def found(host: str) -> list[int]:
        known = read_known_hosts([path, hashed, tmp_path / "missing"], host)
        prints = [fingerprint(key) for key in keys]
        return sorted(prints.index(key.fingerprint) for key in known.keys)

    assert found("plain.example") == [0, 1]
    assert found("PLAIN.example") == [0, 1]
    assert found("not.example") == []
    assert found("[plain.example]:2200") == [4]
    assert found("secret.test") == [5]
    assert found("elsewhere") == []
    revoked = read_known_hosts([path], "plain.example").revoked
    assert [key.fingerprint for key in revoked] == [fingerprint(keys[3])]
