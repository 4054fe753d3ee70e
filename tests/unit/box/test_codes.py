"""A code that the box sends and this side doesn't know would be a fault without a name."""

from bootstrap.box import checks, problems
from bootstrap.codes import CODES

PROBLEMS = [value for value in vars(problems).values() if isinstance(value, problems.Problem)]
SENT = {problem.code for problem in [*PROBLEMS, *problems.NVML.values()]}
SENT |= {check.code for check in (*checks.OF_GPUS, *checks.BOX_CHECKS)}
SENT |= {"gpu-unread", "box-unread", "gpu-sick"}


def test_every_code_of_the_gpu_check_is_known_here():
    assert len(SENT) > 20
    assert SENT - {""} - set(CODES) == set()  # a check that only notes has no code
