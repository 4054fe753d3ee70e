"""The GPU verdict of the short script: what `bootstrap/box` asks first, in one file, by ctypes.

usage: python3 gpu.py ORDER_JSON RESULT_JSON
Any Python from 3.6 on; needs no package. Exit code, codes and lines as `box/verify.py`.
"""

import ctypes
import json
import os
import re
import sys

UNTOLD = 3  # NVML_ERROR_NOT_SUPPORTED
SICK = (8, 10, 11, 14, 15, 16)
# nvmlReturn_t of a start that failed, and the code that names it (box/gpu_errors.py).
STARTS = {
    4: "no-permission",
    9: "no-driver",
    12: "nvml-missing",
    18: "nvml-mismatch",
    999: "gpu-detached",
}
# What speaks against a card: function, size of its numbers, how many, arguments, which count.
HEALTH = (
    ("TotalEccErrors", 8, 1, (1, 0), (0,), "gpu-ecc"),
    ("RemappedRows", 4, 4, (), (2, 3), "gpu-remapped"),
    ("RetiredPagesPendingStatus", 4, 1, (), (0,), "gpu-retired"),
    ("MigMode", 4, 2, (), (0,), "gpu-mig"),
    ("ComputeMode", 4, 1, (), (0,), "gpu-mode"),
)
ORDER = dict.fromkeys(("count", "name", "min_memory_gib", "min_driver", "min_cuda"))
ORDER.update({"require": True}, **json.loads(sys.argv[1]))
REASONS = []
GPUS = []
FACTS = {"driver": None, "cuda": None}


def against(code, says, gpu=None, outcome="return"):
    """One reason."""
    outcome = outcome if ORDER["require"] else "warn"
    gpus = [] if gpu is None else [gpu]
    REASONS.append(dict(check=code, code=code, outcome=outcome, gpus=gpus, says=says, advice=""))


def end():
    """Write the document and the lines, and leave."""
    REASONS.sort(key=lambda reason: reason["outcome"])
    verdict = REASONS[0]["outcome"] if REASONS else "keep"
    with open(sys.argv[2], "w") as file:
        json.dump(
            dict(
                FACTS,
                version=1,
                verdict=verdict,
                reasons=REASONS,
                gpus=GPUS,
                checks=[],
                seconds=0.0,
            ),
            file,
        )
    print("verdict " + verdict)
    for name in FACTS:
        if FACTS[name]:
            print(name + " " + FACTS[name])
    for gpu in GPUS:
        print("gpu %(index)s %(name)s %(memory_mib)s MiB" % gpu)
    for reason in REASONS:
        print("reason %(outcome)s %(code)s GPU %(gpus)s: %(says)s" % reason)
    sys.stdout.flush()
    os._exit(6 * (verdict == "return"))


def ask(name, *arguments):
    """NVML's answer code; a function that the driver lacks counts as not told."""
    return getattr(NVML, "nvml" + name, lambda *_: UNTOLD)(*arguments)


def version(text):
    """A dotted version, for comparing."""
    return [int(n) for n in re.findall(r"\d+", re.sub(r"(\.0+)+$", "", text))]


def told_by(name, handle, size, count, asked=()):
    """The numbers that a function fills in; none where the card tells none."""
    cells = ((ctypes.c_ulonglong if size == 8 else ctypes.c_uint) * count)()
    places = [ctypes.byref(cells, size * at) for at in range(count)]
    code = ask("DeviceGet" + name, handle, *list(asked) + places)
    if code in SICK:
        raise ValueError(code)
    return [] if code else list(cells)


def fits(word, words):
    """Whether a card's name tells, or does not deny, one word of the order (box/gpu_checks.py)."""
    if word in words or any(word == a + b for a, b in zip(words, words[1:])):
        return True
    if word.startswith("sxm"):
        return not {"pcie", "nvl"} & set(words)
    size = re.compile(r"\d+gb$")
    return size.match(word) and not any(map(size.match, words))


def look_at(gpu):
    """Everything of one card. Raises ValueError with NVML's code where it is sick."""
    handle = ctypes.c_void_p()
    code = ask("DeviceGetHandleByIndex_v2", gpu, ctypes.byref(handle))
    if code == 4:
        return
    code = code or ask("DeviceGetName", handle, TEXT, 96)
    # The second edition leaves out what the driver keeps for itself; its version tag comes first.
    memory = (ctypes.c_ulonglong * 5)(0x2000028)
    if ask("DeviceGetMemoryInfo_v2", handle, ctypes.byref(memory)):
        code = code or ask("DeviceGetMemoryInfo", handle, ctypes.byref(memory, 8))
        memory[4] = memory[3]
    if code:
        raise ValueError(code)
    name = TEXT.value.decode()
    GPUS.append(dict(index=gpu, name=name, uuid=None, memory_mib=memory[1] >> 20, capability=None))
    words = re.findall("[a-z0-9]+", name.lower())
    if not all(
        fits(word, words) for word in re.findall("[a-z0-9]+", (ORDER["name"] or "").lower())
    ):
        against("gpu-name", name, gpu)
    share = 0.9 if any(told_by("EccMode", handle, 4, 2)[:1]) else 0.96
    if memory[1] < share * (ORDER["min_memory_gib"] or 0) * 2**30:
        against("gpu-memory", "%d MiB" % (memory[1] >> 20), gpu)
    if memory[4] > 2**30 and not ORDER.get("run_alive"):
        against("gpu-used", "%d MiB in use" % (memory[4] >> 20), gpu)
    for function, size, count, asked, bad, code in HEALTH:
        numbers = told_by(function, handle, size, count, asked)
        wanted = code == "gpu-mig" and bool(ORDER.get("mig"))
        if numbers and any(numbers[at] for at in bad) != wanted:
            against(code, "%s %s" % (function, numbers), gpu)


for folder in ("", "/usr/local/nvidia/lib64/", "/usr/lib/wsl/lib/"):
    try:
        NVML = ctypes.CDLL(folder + "libnvidia-ml.so.1")
        break
    except OSError:
        pass
else:
    if any(name.startswith(("nvidia", "dxg")) for name in os.listdir("/dev")):
        against("nvml-missing", "libnvidia-ml.so.1 is not here")
    elif ORDER["require"]:
        against("no-gpu", "no NVIDIA GPU is here")
    end()
CODE = ask("Init_v2")
if CODE:
    against(STARTS.get(CODE, "gpu-sick"), "NVML answers %d" % CODE)
    end()
TEXT = ctypes.create_string_buffer(96)
NUMBER = ctypes.c_int()
if not ask("SystemGetDriverVersion", TEXT, 96):
    FACTS["driver"] = TEXT.value.decode()
if not ask("SystemGetCudaDriverVersion_v2", ctypes.byref(NUMBER)):
    FACTS["cuda"] = "%d.%d" % (NUMBER.value // 1000, NUMBER.value % 1000 // 10)
CODE = ask("DeviceGetCount_v2", ctypes.byref(NUMBER))
if CODE or not NUMBER.value:
    against("no-gpu", "NVML answers %d, GPUs: %d" % (CODE, NUMBER.value))
    end()
SICKLY = 0
for INDEX in range(NUMBER.value):
    try:
        look_at(INDEX)
    except ValueError as error:
        SICKLY += 1
        against("gpu-sick", "NVML answers %s" % error, INDEX)
if not GPUS and not SICKLY:
    against("no-permission", "this user may not open the GPU")
if ORDER["count"] and len(GPUS) != ORDER["count"]:
    against("gpu-count", str(len(GPUS)), None, "return" if len(GPUS) < ORDER["count"] else "warn")
for NAME in FACTS:
    if ORDER["min_" + NAME] and version(FACTS[NAME] or "9999") < version(ORDER["min_" + NAME]):
        against("gpu-" + NAME, FACTS[NAME])
end()
