"""What a recipe says, by its names in small letters. Those that it leaves out are in `defaults.sh`.

A number is text, a flag `yes` or empty.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Mapping, Sequence


class Values:
    program: str
    """Its digest."""
    needs: Sequence[str]
    """A row for each step: its name, and those of the steps that it needs."""
    workdir: str
    is_local: str
    volume_at: str
    min_free_mb: str
    min_tmp_mb: str
    lock_patience: str
    index: str

    repo_key: str
    repo_usual_key: str
    repo_root: str
    repo_name: str
    repo_commit: str
    repo_snapshot: str
    repo_tree: str
    """Stands for the content."""
    repo_branch: str
    repo_url: str
    clone_url: str
    """From where the box clones, if it does."""
    repo_tags: Sequence[str]
    """Those that describe the commit, a row `ID COMMIT NAME` each."""
    tag_objects: str
    """A pack of those that are annotated, in base64."""
    git_user_name: str
    git_user_email: str
    shared: Sequence[str]

    env_names: Sequence[str]
    env_values: Sequence[str]
    secrets: Sequence[str]
    secrets_id: str
    secret_ids: Sequence[str]
    """What stands for the value of each secret; none of a door's."""
    authorized_keys: Sequence[str]
    known_hosts: Sequence[str]
    packages: Sequence[str]
    lease: str
    """Its terms as JSON, see `lease/rules.py`."""
    gpu: str
    """The hardware that was ordered, as JSON, see `verdict/expected_hardware.py`."""
    smoke: str
    """How thoroughly each GPU is tried."""
    data: Sequence[str]
    """Its items, each as JSON, see `data/items.py`."""
    prepare: Sequence[str]

    train_command: str
    train_session: str
    train_nodes: str
    train_grace: str
    train_resume: str
    train_on_notice: str
    results: Sequence[str]
    results_of_all: str
    results_to: Sequence[str]
    metrics: Sequence[str]
    notify: Sequence[str]
    log_max_mib: str

    python_id: str
    """A digest of what it says of the environment."""
    venv: str
    python_version: str
    as_of: str
    installer: str
    torch_backend: str
    reuse: str
    requirements_set: str
    requirements: Sequence[str]
    lock: str
    conda: str
    conda_tools: Sequence[str]
    extras: Sequence[str]
    python_index: Sequence[str]
    lock_options: Sequence[str]
    added_to_lock: Sequence[str]
    added_arguments: Sequence[str]
    built_last: Sequence[str]
    names_of_last: Sequence[str]
    dependencies: Sequence[str]
    """Of the environment; the arguments are those of uv's and pip's `install`, see
    `requirement_words` in `bootstrap/setup/script.py`."""

    def __init__(self, texts: Mapping[str, str | Sequence[str]]) -> None:
        vars(self).update({name.lower(): text for name, text in texts.items()})
