"""Requirements that no box can install are named before anything is sent; no others are."""

from typing import Any

import pytest

from bootstrap.errors import UsageError
from bootstrap.profile.schema import Python
from bootstrap.profile.survey.files import check_requirements


def check(files: dict[str, bytes], **python: Any) -> None:
    def read(names: list[str]) -> dict[str, bytes]:
        return {name: files[name] for name in names if name in files}

    check_requirements(Python(**python), read)


GOOD = {
    "Windows": b"-r base.txt\r\ntorch\r\n",
    "tab": b"-r\tbase.txt\n",
    "byte-order mark": b"\xef\xbb\xbf-r base.txt\n",
    "PowerShell": "-r base.txt\r\ncaf\u00e9\r\n".encode("utf-16"),
    "quotes": b'-r "base.txt"\n',
    "continued": b"-r \\\nbase.txt\n",
    "variable": b"-r ${NAME}.txt\n",
    "address": b"-r https://example.org/more.txt\n",
    "comment": b"# -r none.txt\ntorch # -r none.txt\n",
    "hash": b"torch==2.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n",
    "folder": b"-e ./lib[all]\nlib @ file:lib\nwhl @ file:///opt/wheels/x.whl\n",
    "index": b"--extra-index-url https://example.org/simple\n-f wheels\n",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_requirements_files_that_pip_and_uv_can_read_give_no_error(text: bytes) -> None:
    check({"requirements.txt": text, "base.txt": b"six\n"})


BAD = {
    "Latin-1": ({"requirements.txt": b"torch\n# caf\xe9\n"}, "requirements.txt:2: ", "iconv"),
    "Latin-1 further down": (
        {"requirements.txt": b"-r base.txt\n", "base.txt": b"\xe9"},
        "base.txt:1: ",
        "iconv",
    ),
    "pip freeze in conda": (
        {"requirements.txt": b"numpy @ file:///croot/numpy_1/work/dist/numpy.whl#sha256=0\n"},
        "requirements.txt:1: ",
        "Write numpy with its version",
    ),
    "of Windows": (
        {"requirements.txt": b"six @ file:///D:/bld/six_1/work\n"},
        "requirements.txt:1: ",
        "Write six",
    ),
    "not committed": (
        {"requirements.txt": b"torch\r\n-r base.txt\r\n"},
        "requirements.txt:2: ",
        "Commit that file",
    ),
}


@pytest.mark.parametrize(("files", "where", "advice"), BAD.values(), ids=BAD)
def test_a_requirement_no_box_can_install_is_wrong_usage_with_its_line_and_advice(
    files: dict[str, bytes], where: str, advice: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(files)
    assert where in caught.value.text()
    assert advice in caught.value.text()


def test_a_local_file_in_the_pip_section_of_a_conda_file_is_refused() -> None:
    listed = b"dependencies:\n- pip:\n  - -r more.txt\n  - six @ file:///croot/six/work\n"
    with pytest.raises(UsageError, match="croot"):
        check({"e.yml": listed, "more.txt": b""}, conda="e.yml")


def test_a_requirements_file_with_a_declared_encoding_is_wrong_usage_except_for_pip() -> None:
    text = b"# -*- coding: latin-1 -*-\n# caf\xe9\n"
    check({"requirements.txt": text}, installer="pip")
    with pytest.raises(UsageError):
        check({"requirements.txt": text})
