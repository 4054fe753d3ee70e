"""What a profile asks of the steps in Python. A recipe has it as one document of JSON."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Mapping, Sequence
    from typing import Any


class Values:
    """What the document says; what it leaves out is as the plainest profile has it."""

    packages: Sequence[str] = []
    data: Sequence[Mapping[str, Any]] = []
    """Its items, see `data/items.py`."""
    lease: Mapping[str, Any] = {}
    """Its terms, see `lease/rules.py`."""
    gpu: Mapping[str, Any] = {}
    """The hardware that was ordered, see `verdict/expected_hardware.py`."""
    smoke: str = "quick"
    """How thoroughly each GPU is tried."""
    authorized_keys: Sequence[str] = []
    secret_ids: Sequence[str] = []
    """What stands for the value of each secret; none of a door's."""
    prepare: Sequence[str] = []
    train_nodes: str = ""
    results_of_all: bool = False
    train_resume: str = ""
    train_on_notice: str = ""
    log_max_mib: int = 1024
    metrics: Sequence[str] = []
    results_to: Sequence[str] = []
    notify: Sequence[str] = []
    python_id: str = "44136f"
    """A digest of what it says of the environment."""
    clone_url: str = ""
    """From where the box clones, if it does."""
    git_user_name: str = ""
    git_user_email: str = ""
    repo_tags: Sequence[str] = []
    """Those that describe the commit, a row `ID COMMIT NAME` each."""
    tag_objects: str = ""
    """A pack of those that are annotated, in base64."""

    python_version: str = ""
    as_of: str = ""
    installer: str = "uv"
    torch_backend: str = "auto"
    reuse: str = "auto"
    requirements_set: bool = False
    requirements: Sequence[str] = []
    lock: str = ""
    conda: str = ""
    conda_tools: Sequence[str] = []
    extras: Sequence[str] = []
    python_index: Sequence[str] = []
    lock_options: Sequence[str] = []
    added_to_lock: Sequence[str] = []
    added_arguments: Sequence[str] = []
    built_last: Sequence[str] = []
    names_of_last: Sequence[str] = []
    dependencies: Sequence[str] = []
    """Of the environment; the arguments are those of uv's and pip's `install`, see
    `requirement_words` in `bootstrap/setup/script.py`."""

    def __init__(self, document: Mapping[str, object]) -> None:
        vars(self).update(document)
