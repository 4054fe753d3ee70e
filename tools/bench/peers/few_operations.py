# mypy: ignore-errors
"""Three things that are right on a box that was set up."""

from pyinfra.operations import apt, files

apt.packages(name="git and tmux are there", packages=["git", "tmux"])
files.directory(name="the working folder is there", path="/workspace")
files.line(name="root's shell is bash", path="/etc/passwd", line="^root:.*:/bin/bash$")
