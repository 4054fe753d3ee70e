"""A user in a repository from which `inv` finds its tasks."""

import pytest

from tests.cli import User
from tests.plain_environment import HERE


def with_tasks(user: User) -> User:
    (user.repository().root / "tasks.py").symlink_to(HERE / "tasks.py")
    return user


@pytest.fixture
def at(user: User) -> User:
    """One of a test's own."""
    return with_tasks(user)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> User:
    """The same once, for commands that change nothing."""
    return with_tasks(User(tmp_path_factory.mktemp("reader")))
