"""The sentences for the codes that a box may send.

A box never sends prose, only a code of this table and numbers. The table holds
what happened and what to do next; `{names}` are number fields of the event
(`bootstrap.steps.events.NUMBERS`), and a number that the box left out reads "?".
To add a code, add its line.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bootstrap.onbox.python.lacking import LIBRARIES


class Code(NamedTuple):
    what: str
    hint: str


_TABLE = """
# Any step
command-failed | a command ended with exit code {rc} | the step's log shows its last lines
no-permission | this user may not change what the step must change | log in as root, or as a user with sudo
busy | another setup is at work on this box | wait for it, or cancel it: boxstrap stop --setup
cancelled | the setup was cancelled | run the same command again to go on from here
interrupted | the setup was cut short | run the same command again to go on from here
check-failed | it was applied, but its check still says no | run again; the step's log shows what the check saw
killed | its process was killed | check whether the box ran out of memory, then run again
same | the same setup is at work already | it is followed
results-unsafe | results of an earlier run are not home, and would be overwritten: too large to be copied first, or the disk has no room | pull them first: boxstrap pull --all; or --overwrite-results, and they are lost; or begin it in a tree of its own: boxstrap run --beside
run-left | {count} processes of the stopped run are still alive, the first is process {pid} | look at it on the box (ps -fp {pid}): it is another user's, or stuck in a driver

# preflight
no-writable-dir | the working folder can't be written | set box.workdir to a folder that this user owns
settings-of-another | settings in the working folder belong to another user of the box, who could choose which packages run | set box.workdir to a folder that only this user can write
home-of-another | boxstrap's folder there belongs to another user of the box, who could read your secrets and change what runs | set box.workdir to a folder that only this user can write
volume-not-mounted | the volume that was rented with the box is not mounted where it belongs, and what is made there would be lost with the box | mount it there, or give the box back: boxstrap down; to go on without it: --set box.volume=null
read-only-home | the home folder can't be written: the login keys and shells of the box stay as they are | nothing; the training still has its environment
disk-full | the box's disk is full | free some space on the box, or rent a larger disk
no-temporary | temporary files can't be written | make /tmp on the box writable, or set TMPDIR there
inodes-full | the disk can hold no more files | delete files on the box, or rent a larger disk
no-dns | the box can't look up host names | check its network; a restart of the box often helps
musl | the box's C library is musl, as on Alpine; PyTorch and uv are built for glibc | rent an image of Debian or Ubuntu
clock-off | the box's clock is days off, so certificates will be refused | set its clock, or return it

# shell
downloads-kept | downloads of models and packages are kept in the working folder, beyond this tree | nothing; to keep some elsewhere, set HF_HOME, TORCH_HOME, PIP_CACHE_DIR or UV_CACHE_DIR in env: of the profile
secret-gone | a secret was removed from the box in the meantime | run the same command again: it is sent then

# tools
dpkg-locked | another run of the package manager (process {pid}) holds dpkg's lock | wait for it to end (the step's log names it), then run again
missing-tools | packages that the profile asks for can't be installed by this user | the step's log names them
no-git | the box has no git | install git on the box
no-tmux | the box has no tmux: training runs detached, with the same log | install tmux to attach to it

# agent and python
uv-missing | uv could not be fetched from any source | install uv on the box, then run again
uv-unlisted | the box's package index does not have the uv that boxstrap expects | install another uv on the box, then run again: PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install uv
uv-checksum | the uv that was fetched is not the one boxstrap expects | check the box's package index; the file was not run
proxy-unreachable | a proxy that this box is told to use doesn't answer | correct HTTP_PROXY and HTTPS_PROXY of the box or of the profile's env, then run again
certificate-untrusted | a server that packages come from shows a certificate that this box doesn't trust | add its authority, such as your company's, to the box's certificates (update-ca-certificates), or correct the index's address; then run again
index-unreachable | the package index doesn't answer | check the box's network and its settings of pip and apt, then run again
no-python | the box has no python3, and this user can't install it: uv fetches one | nothing; or install python3 on the box
python-version | the Python that the profile wants isn't on the box, and could not be installed | the step's log lists what the box has; set python.version to one of them
environment-in-use | a live run uses the environment, and this needs another one | wait for its end, or end it: boxstrap stop; with a folder in the repository as python.venv each tree has its own
requirements-missing | a requirements file that the profile names isn't in the commit | commit it, or change python.requirements
package-missing | the index has no package of a required name | check the spelling, and which package index the box is set to
sklearn-renamed | the requirements name sklearn, which installs no more: its name is scikit-learn | write scikit-learn there; or, if another package asks for it, SKLEARN_ALLOW_DEPRECATED_SKLEARN_PACKAGE_INSTALL: "True" below env in the profile
wheel-missing | a required package has no wheel for the environment's Python | the step's log says for which versions it has some: set python.version to one of these
resolve-failed | the requirements can't be satisfied: versions disagree, or one doesn't exist | the step's log says which
dependencies | private dependencies are sent from your machine | nothing
dependency-missing | a private dependency never arrived on the box | run the same command again: it sends it
dependency-private | a git dependency needs a credential, and the box has none | name its address in python.private: this machine then fetches it, and sends it
build-failed | a package could not be built or installed | the step's log shows which one, and its last lines
import-failed | the environment can't list its packages | run again to rebuild them
compiling | a package has no wheel for this Python, and is compiled on the box: that can take minutes | the step's log names it last; python.only_binary: [NAME] stops there instead, another python.version may have a wheel
image-reused | {count} packages of the image are reused: about {have} MB and {secs} s saved | python.reuse: never fetches all of them
torch-no-cuda | torch is built without CUDA, and the box has a GPU | set python.torch_backend: cu{need}
torch-driver | torch needs a newer CUDA than the driver runs, which is {have} | set python.torch_backend: cu{need}, or rent a box with a newer driver
torch-arch | torch has no code for this GPU, whose compute capability is {have} | set python.torch_backend: cu{need}

# repo
commit-missing | the commit never arrived on the box | run the same command again: it sends it
box-edits | files were edited on the box, and what was sent changes them | bring them by boxstrap sync --back; or drop them there, by git checkout HEAD -- FILE (rm FILE where git knows none, as in a submodule): the step's log lists them
box-commits | commits were made on the box that your files here don't build on | bring them by boxstrap sync --back, which says how to merge them; the step's log lists them
untracked-in-the-way | untracked files on the box lie where the new commit has files | move them away: the step's log lists them
git-unreachable | the git server doesn't answer | check git.url and the box's network; git.access: over-ssh sends the commit from your machine instead
clone-failed | the repository could not be cloned | check git.url, and that the box may read it
edited-files | files of the commit were edited on the box ({count}), and stay so: boxstrap sync --back shows and brings them | the step's log names them
removed-files | files of the commit were removed on the box: they are restored | the step's log names them
cut-files | files of the commit were truncated on the box: they are restored | the step's log names them
git-busy | another git is at work in the repository on the box | wait for it to end, then run again
git-mended | the repository on the box was damaged: it is repaired, its files are unchanged | the step's log shows what was wrong
git-damaged | the repository on the box is damaged | move its folder away on the box, then run again: your files there are unchanged
tree-not-ours | the repository's folder holds a clone that boxstrap did not make | take it with --adopt (its remotes, branches and edits stay), move it away, or change box.workdir
own-folder | another repository on this box has the folder of this name: this one has its own folder beside it | nothing: it stays there
shared-tracked | a folder of the profile's `shared:` is in the commit | take it out of shared, or out of git
tree-lacks-ignored | the main tree has files that git ignores, and this run's own tree does not; those that it reads go into shared, as shared: [data/] | name them in shared
pushed-not-linked | what was pushed to the main tree could not be linked into this one (the step's log says why) | name its folder in shared
shared-in-the-way | where a shared folder belongs lies something else (the step's log names it) | move it away, or into the main tree's folder of that name
tree-in-the-way | the repository's folder exists and is not a git repository | move it away, or change box.workdir
ref-missing | the repository has no such ref | check git.ref

# data
data | data is sent from your machine | nothing
data-addresses | addresses of a bucket's objects are signed by your machine | nothing
data-missing | data that is sent from your machine never arrived on the box | run the same command again: it goes on from what is there
data-unreachable | a server of the profile's data doesn't answer | check its address in data, and the box's network, then run again: it goes on from what is there
data-refused | a server of the profile's data gives nothing (the step's log has its answer) | check the address in data; a private repository of Hugging Face needs HF_TOKEN in secrets
data-changed | a file of the profile's data changed on its server while it was fetched | run the same command again
data-digest | a file of the profile's data is not the one that was named: its digest is another one | the step's log names it; check its address, and its sha256 in data
data-unpinned | a file of the profile's data has no sha256: whatever its server gives is taken | put its SHA-256 beside its address in data
data-space | the data has {need} MB, and {have} MB are left on the box | free some space on the box, or rent a larger disk
data-archive | an archive of the profile's data is refused: nothing of it was placed | the step's log says what is wrong with it
data-in-the-way | where data belongs lies something else (the step's log names it) | move it away, or change its `to` in `data`
data-outside | an item of data has its place outside of the working folder | change its `to` in `data`, or box.workdir
data-failed | data could not be written on the box | the step's log says why

# prepare
prepare-failed | a command of `prepare` failed | the step's log has its exit code and its last lines: correct it, then set up again

# train
gpu-not-there | the box lacks a GPU that was asked for | see which there are: boxstrap top; without --gpus a run has all
nodes-alone | this is a training of several nodes, and nobody begins it on the others | name all boxes: boxstrap run --host … --host …; on this one alone: --set train.nodes=1
no-run-before | the run that this one is to wait for is not there | see which there are: boxstrap status
run-not-begun | the run did not begin within 10 seconds | see the step's log

# lease
lease-held | the box holds the lease itself | see what is left: boxstrap status
lease-until-restart | the box holds the lease until it is restarted; after that nothing on this box holds it | run setup again then, or let a machine of yours watch it: boxstrap guard --once
lease-no-key | nothing on this box holds the lease: its provider gave it no key of its own | let a machine of yours watch it: boxstrap guard --once
lease-wipes | nothing on this box holds the lease: a stop would wipe what lies outside its volume, or all of a spot box, so the box keeps running | let the box be destroyed at the end instead: boxstrap setup --set lease.then=destroy; or put box.workdir on the volume
lease-refused | nothing on this box holds the lease: the account refuses the box's own key | let a machine of yours watch it: boxstrap guard --once
lease-no-answer | nothing on this box holds the lease yet: the account has not answered the box | the box asks again, and nothing but you ends it before that; to see: boxstrap lease
lease-later | nothing on this box holds the lease yet: an earlier version's monitor, which knows no lease, is running until the run ends | see: boxstrap status

# gpu
no-gpu | the box shows no GPU | return this box, or set gpu.require: false
gpu-count | the box has another number of GPUs than the profile wants | return this box, or change gpu.count
gpu-name | the box's GPU is not the model that the profile names | return this box, or change gpu.name
gpu-memory | the GPU has less memory than the profile wants | return this box, or change gpu.min_memory_gib
gpu-driver | the driver is older than the profile wants | return this box, or change gpu.min_driver
gpu-cuda | the driver's CUDA is older than the profile wants | return this box, or change gpu.min_cuda
gpu-hang | the driver did not answer in time | return this box
gpu-sick | the driver reports a fault | return this box
gpu-crash | the driver's library crashed | return this box
gpu-error | the driver answers with an error | restart the instance, or return this box
gpu-detached | the container lost its access to the GPU | restart the instance, or return this box
no-device | no GPU was handed to this container | restart the instance, or return this box
no-driver | there is a card, but no driver | return this box
nvml-broken | the driver's library can't load | restart the instance, or return this box
nvml-mismatch | the driver and its library differ in version | restart the instance, or return this box
gpu-ecc | the GPU's memory had errors that could not be corrected | return this box
gpu-remapped | the GPU's memory has rows that could not be remapped | return this box
gpu-retired | the GPU's memory has pages that wait to be retired | return this box
gpu-used | somebody else uses the GPU's memory | return this box
gpu-mig | the GPU is divided by MIG, or not, unlike the order | return this box
gpu-mode | the GPU's compute mode is not the usual one | return this box
gpu-nvlink | the GPUs' links are down | return this box
gpu-power | the GPU's power is limited | expect it to be slower than its model
gpu-throttle | the GPU is slowed down | expect it to be slower than its model
gpu-hot | the GPU is nearly too hot | expect it to be slower than its model
gpu-bus | the GPU's bus is thinner than it could be | expect slow copies to and from it
gpu-unread | the driver did not report everything | see the verdict: boxstrap verify
box-cpus | the container is granted fewer CPU cores than the profile wants | return this box, or change box.min_cpus
box-memory | the container is granted less memory than the profile wants | return this box, or change box.min_memory_gib
box-shm | the container has little shared memory (/dev/shm) | train with num_workers=0, or rent it with more
box-disk | the working folder has little free disk | rent a larger disk, or set box.workdir to another one
box-unread | the box did not report everything | see the verdict: boxstrap verify
disk-slow | the working folder's disk writes slowly | expect checkpoints to take their time
index-slow | the package index is slow or can't be used | check the box's network and its pip settings
git-slow | the git host is slow or can't be reached | check git.url, or set git.access: over-ssh
clock-wrong | the box's clock is wrong | set its clock, or restart the box
smoke-memory | the GPU's memory gives back what was not written | return this box
smoke-product | the GPU multiplies wrongly | return this box
smoke-unstable | the GPU gives different results for the same product | return this box
smoke-failed | the GPU failed under load | return this box
smoke-undone | the smoke test could not run | see its log: boxstrap logs --step smoke
smoke-slow | the GPU computes far slower than its model | compare with what you pay
smoke-memory-slow | the GPU's memory is far slower than its model's | compare with what you pay
smoke-bus | copies to and from the GPU are far slower than its bus | compare with what you pay
smoke-throttle | the GPU slows itself down under load | compare with what you pay
nvml-missing | the driver's library (NVML) is missing | return this box, or rent an image with the driver
"""  # noqa: E501 - one line a code


def _read(table: str) -> dict[str, Code]:
    lines = (line for line in table.splitlines() if line and not line.startswith("#"))
    rows = ([cell.strip() for cell in line.split("|")] for line in lines)
    return {name: Code(what, hint) for name, what, hint in rows}


CODES: Mapping[str, Code] = {
    **_read(_TABLE),
    **{
        f"lacks-{package}": Code(
            f"modules of the environment need {name}, which the box lacks: packages: [{package}]",
            "add Debian's package to the profile, and set up again (--restart after a failed run)",
        )
        for name, package in reversed(LIBRARIES.items())
    },
}

_NAME = rb"([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?![A-Za-z0-9._-])"
_NAMES: Mapping[str, bytes] = {
    "certificate-untrusted": (  # uv and conda; pip; git
        rb"(?:for url \(https://(?=[^\n@]*\n.*\n.*peer cert)|host='(?=.*CERTIFICATE_)"
        rb"|access 'https://(?=[^\n@]*certificate))" + _NAME
    ),
    "proxy-unreachable": rb"the proxy ([][0-9A-Za-z_.:-]{1,200}) of [A-Za-z_]+ doe",
    "package-missing": (
        rb"(?:[Bb]ecause|and) " + _NAME + rb" was\s+not\s+found\s+in\s+the\s+p"  # uv
        rb"|satisfies the requirement " + _NAME + rb"[^\n]{0,200}versions: none"  # pip
        rb"|(?:Unable to locate package |Package '(?=.*no installation cand))" + _NAME  # apt
    ),
    "wheel-missing": (
        rb"(?:[Bb]ecause|and) " + _NAME + rb"[=<>~!,.0-9]{0,50}\s+has\s+no\s+wheels\s+with\s+a\s+m"
    ),
    "no-dns": (  # git, curl and ssh; apt; pip; uv
        rb"(?:ould not resolve host(?:: |name )|failure resolving '|host='(?=.*NameRes)"
        rb"|for url \(https?://(?=[^\n@]*\n.*\n.*dns error))" + _NAME
    ),
}
"""What a code is about, if the step's log has it in a form that is safe to show."""


def named_in(code: str, log: bytes) -> str:
    """Return what the code is about, from the end of the step's log; "" if it isn't there."""
    pattern = _NAMES.get(code)
    found = list(re.finditer(pattern, log)) if pattern else []
    return next(filter(None, found[-1].groups()), b"").decode() if found else ""


def edited_there(files: Sequence[str], host: str) -> str:
    """Return the warning that tracked files of a box are not as they were sent to it."""
    named = ", ".join(files[:5]) + (", …" if len(files) > 5 else "")
    return f"edited on the box: {named}. To see and take it: boxstrap sync --back --host {host}"


def field_names(sentence: str) -> set[str]:
    return {*re.findall(r"\{(\w+)", sentence)}


def explain(code: str, fields: Mapping[str, float | str]) -> Code:
    """Return the code's sentence and next step, with the event's numbers in it. An unknown code's
    sentence is its name: a box may run another version."""
    known = CODES.get(code)
    if known is None:
        return Code(code, "the step's log shows its last lines")
    numbers = {name: _readable(value) for name, value in fields.items()}
    # A hint whose number the box could not say would only mislead.
    said = field_names(known.hint) <= numbers.keys()
    hint = known.hint.format_map(numbers) if said else "the step's log says what fits"
    return Code(known.what.format_map(defaultdict(lambda: "?", numbers)), hint)


def _readable(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:d}" if isinstance(value, int) else f"{value:.2f}".rstrip("0").rstrip(".")
