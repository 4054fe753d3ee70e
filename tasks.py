"""`inv` looks for its tasks here; they live in `bootstrap.tasks`."""

from bootstrap.tasks.invoke_tasks import make_tasks

namespace = make_tasks()
