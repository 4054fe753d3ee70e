"""What people rent boxes from: one module each, a subclass of `CloudAccount`."""

CLASSES = {
    "vast": "vast.Vast",
    "runpod": "runpod.RunPod",
    "lambda": "lambda_cloud.Lambda",
    "paperspace": "paperspace.Paperspace",
    "ec2": "ec2.Ec2",
    "hf": "hf_jobs.HuggingFaceJobs",
}
"""Each provider's name, and its module and class. A table of words, so that a command that asks no
provider imports none. The profile's keys, `--host NAME:ID` and what help says follow from it."""
NAMES = tuple(CLASSES)
WITH_CONTRACTS = ("vast", "hf")
"""Those whose boxes end at a time that is known: with the contract of a host, who may ask for more,
or by a limit of their own."""
ONLY_END = ("hf",)
"""Those whose boxes can't be stopped, and end with all that is on them at a time that is fixed when
they are rented."""
_SHARED = ("ssh.hf.jobs",)
"""Addresses at which all boxes of a provider are reached; the user's name says which is meant."""


def is_shared(address: str) -> bool:
    """Whether many boxes are reached at this address and port."""
    return address.lower() in _SHARED


def place_of(address: str, port: int, user: str) -> tuple[str, int, str]:
    """Return what tells a box from others by how it is reached."""
    return address.lower(), port, user if is_shared(address) else ""
