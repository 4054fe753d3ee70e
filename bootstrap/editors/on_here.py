"""This machine's side: the user's own settings, changed so that the editor asks nothing."""

from __future__ import annotations

from pathlib import Path

from bootstrap.editors import jsonc
from bootstrap.editors.editors import EXTENSIONS, Editor
from bootstrap.sshconfig.userfile import LeftAloneError, UserFile

_PLATFORM, _EXTENSIONS = "remote.SSH.remotePlatform", "remote.SSH.defaultExtensions"


def update_user_settings(editor: Editor, host: str, windows_home: Path | None = None) -> str:
    """Set in the user's settings that `host` runs Linux, and which extensions it needs.

    Returns the reason for a failure; "" on success, or if the editor was never started here.
    """
    path = editor.user_settings(windows_home=windows_home)
    if not path.parents[1].is_dir():
        return ""
    file = UserFile(path)
    try:
        data = file.read()
        text = (data or b"").decode("utf-8")
        new = _merged(text, host)
        if new != text:
            file.prepare(new.encode()).put()
    except (LeftAloneError, UnicodeDecodeError, jsonc.JsoncError) as error:
        why = str(error) if isinstance(error, LeftAloneError) else f"{path} can't be read ({error})"
        asks = f"{editor.title} may ask which system {host} runs: Linux."
        return f"{why}, so it was left as it is. {asks}"
    return ""


def _merged(text: str, host: str) -> str:
    if jsonc.at(jsonc.read(text), (_PLATFORM, host)) is None:
        text = jsonc.with_value(text, (_PLATFORM, host), "linux")
    for extension in EXTENSIONS:
        text = jsonc.with_item(text, (_EXTENSIONS,), extension)
    return text
