"""`inv` looks for its tasks here; they live in `bootstrap.tasks`."""

from bootstrap.tasks import namespace

__all__ = ["namespace"]
