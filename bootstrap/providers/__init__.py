"""What people rent boxes from: one module each, a subclass of `CloudAccount`."""

CLASSES = {
    "vast": "vast.Vast",
    "runpod": "runpod.RunPod",
    "lambda": "lambda_cloud.Lambda",
    "paperspace": "paperspace.Paperspace",
    "ec2": "ec2.Ec2",
}
"""Each provider's name, and its module and class. A table of words, so that a command that asks no
provider imports none. The profile's keys, `--host NAME:ID` and what help says follow from it."""
NAMES = tuple(CLASSES)
WITH_CONTRACTS = ("vast",)
"""Those whose boxes end with the contract of a host, who may ask for more."""
