"""Build an environment at its final path, by uv, or by pip or conda where asked, or adopt one that
is there. A note says that it is being built: what was cut short is not taken for whole.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

from .. import MAIN
from ..processes import begin_apart, identity, is_alive
from ..retries import Retries
from ..run_folder import RunFolder, lines_of, live_runs, write_whole
from ..short_program import run
from ..step_report import StepError, log
from ..work.repair import remove_folder
from ..work.trees import is_user
from . import reuse, torch_compat
from .environment import BoxEnvironment, fits
from .image_packages import ImageSite, distributions
from .lacking import warn_of_lacking
from .uv import Uv, call

_READ_ALL = """\
import os, sys
for folder in filter(os.path.isdir, sys.path):
  for name in os.listdir(folder):
    file = os.path.join(folder, name, "METADATA")
    if name.endswith(".dist-info") and os.path.exists(file): open(file, "rb").read()
"""
"""Importing importlib.metadata takes four times as long. Any other module than these might be a
file of the repository, in whose folder this runs."""


class Build:
    """All of it raises StepError, and OSError."""

    def __init__(self, environment: BoxEnvironment, setup: str, retries: Retries) -> None:
        """`setup`: the setup's folder."""
        self._env, self._values, self._setup = environment, environment.values, setup
        self._home = environment.tree.home
        self._sources, self._retries = environment.sources, retries
        self._verdict = Path(self._home, "gpu.json")
        self._uv = Uv(self._home)
        self._is_new = self._is_doubted = False
        """`_is_doubted`: what is there may not be whole."""
        self._images: list[ImageSite] = []

    def build(self) -> None:
        env, installed = self._env, f"{self._setup}/installed"
        self._refuse_if_used()
        self._end_compiling()
        os.chdir(env.tree.path)
        self._begin()
        looking = Thread(target=self._find_images)
        looking.start()
        self._uv.read_indexes()
        looking.join()
        self._make()
        is_own_index = self._choose_settings()
        if self._values.dependencies:
            from .dependencies import await_dependencies  # late: few profiles have any

            await_dependencies(self._home, self._setup, self._values.dependencies)
        self._reuse_image()
        self._refuse_misfit(is_own_index=is_own_index)
        self._compile_ahead(installed)
        self._install()
        write_whole(installed, "")
        self._refuse_misfit(is_installed=True)
        looking = Thread(target=lambda: [*map(warn_of_lacking, env.packages)])
        looking.start()
        if call([env.python, "-c", _READ_ALL], os.environ):
            raise StepError("import-failed", f"{env.python} can't list its packages")
        write_whole(env.noted("folders"), "".join(f"{each}\n" for each in env.listed()), 0o600)
        looking.join()
        write_whole(env.noted("venv"), f"{env.folder}\n")
        os.unlink(env.noted("building"))

    def _refuse_if_used(self) -> None:
        user = next((run for run in live_runs(self._home) if is_user(run, self._env.folder)), None)
        if user:
            name = os.path.basename(user.path)
            advice = f"wait for its end, or stop it: boxstrap stop --run {name}"
            raise StepError("environment-in-use", f"{self._env.folder} is in use by {name}", advice)

    def _begin(self) -> None:
        env, building = self._env, self._env.noted("building")
        if f"made {env.folder}" in lines_of(building):
            # Its first build was cut short: uv takes half a package for a whole one, and nothing in
            # it is worth keeping.
            self._remove()
        elif os.path.exists(building) or os.path.isfile(env.noted("folders")):
            self._is_doubted = not env.is_right()
        has_other = self._has_other_python()
        is_condas = self._values.conda or os.path.isdir(f"{env.folder}/conda-meta")
        is_remade = has_other or (is_condas and env.is_ours)
        if has_other:
            self._find_python()  # what is there stays until another one is
        if is_remade and not self._values.conda:
            self._remove()
        self._is_new = is_remade or not os.path.exists(env.folder)
        os.makedirs(env.notes, exist_ok=True)
        write_whole(building, f"made {env.folder}\n" if self._is_new else "\n", 0o600)
        if (self._is_new or self._is_doubted) and os.path.exists(env.noted("reused")):
            os.unlink(env.noted("reused"))

    def _remove(self) -> None:
        self._retries.must(lambda: call(["rm", "-rf", "--", self._env.folder], os.environ))

    def _has_other_python(self) -> bool:
        env, stated = self._env, self._sources.stated
        is_free = not (self._values.conda or env.wanted_version)
        if is_free and stated and os.access(env.python, os.X_OK):
            words = ["--no-python-downloads", stated]
            found = self._uv.find_python(words, {"VIRTUAL_ENV": env.folder})
            return not found.startswith(f"{env.folder}/") and env.is_ours
        return env.has_other_python()

    def _make(self) -> None:
        env, values = self._env, self._values
        if os.access(env.python, os.X_OK):
            self._adopt()
        else:
            words = ["--quiet", "--allow-existing", "--no-project", "--python", self._find_python()]
            words += [] if values.installer == "uv" else ["--seed"]
            self._retries.must(lambda: self._uv.run(["venv", *words, env.folder]))
            Path(env.folder, ".boxstrap").touch()

    def _adopt(self) -> None:
        env, values = self._env, self._values
        ask = "import platform; print(platform.python_version())"
        version = os.fsdecode(run([env.python, "-c", ask], os.environ).output).strip()
        if values.python_version and not fits(version, values.python_version):
            says = f"{env.folder} has Python {version}; the profile wants {values.python_version}"
            advice = "choose another python.venv, or move it away on the box"
            raise StepError("python-version", says, advice)
        log(f"{'kept' if env.is_ours else 'adopted'}: {env.folder}")
        pip = [env.python, "-I", "-m", "pip", "--version"]
        if values.installer == "pip" and run(pip, os.environ).code:
            self._retries.must(lambda: self._uv.run([*into(env.folder), "--quiet", "pip"]))

    def _find_python(self) -> str:
        """Return one of the box's own interpreters; uv installs one only if none fits."""
        # Named, or uv looks for a file that does.
        wanted, uv = self._env.wanted_version or self._sources.stated or "3", self._uv
        homes = dict.fromkeys(image.home for image in self._images)
        more = {"PATH": "".join(f"{home}:" for home in homes) + os.environ["PATH"]}
        for words in (("--python-preference", "only-system"), ()):
            if found := uv.find_python([*words, "--no-python-downloads", wanted], more):
                return found
        # The repository decides where it comes from, so it is not for boxstrap's own tools.
        more["UV_PYTHON_INSTALL_DIR"] = f"{self._home}/pythons"
        code = self._retries.run(lambda: uv.run(["python", "install", "--no-bin", wanted], more))
        if not code and (found := uv.find_python([wanted], more)):
            return found
        says, why = f"Python {wanted} is not here", self._retries.network_error()
        log("this box has:")
        uv.run(["python", "list", "--only-installed", "--no-python-downloads"])
        if why:
            advice = "one of the listed will do? Set python.version to it"
            raise StepError(why, f"{says}, and could not be fetched", advice)
        raise StepError("python-version", f"{says} and could not be installed")

    def _refuse_missing(self, files: Sequence[str]) -> None:
        for file in files:
            if not os.path.isfile(file):
                says = f"{file} is not in the repository at {self._values.repo_commit[:12]}"
                raise StepError("requirements-missing", says)

    def _choose_settings(self) -> bool:
        """Choose how torch is found. For `auto`, a user's own index is used as it is, without
        choosing a build: return whether."""
        values, uv = self._values, self._uv
        if values.python_index:
            uv.put_first(values.python_index)
        if values.torch_backend == "auto" and uv.has_own_index:
            return True
        if values.torch_backend != "none":
            uv.settings["UV_TORCH_BACKEND"] = values.torch_backend
        elif values.as_of:
            uv.settings["UV_EXCLUDE_NEWER"] = values.as_of
        if values.torch_backend == "auto" and self._env.driver:
            uv.settings["UV_CUDA_DRIVER_VERSION"] = self._env.driver
        return False

    def _find_images(self) -> None:
        values = self._values
        is_plain = values.installer == "uv" and not (values.conda or values.is_local)
        if self._is_new and values.reuse == "auto" and is_plain:
            place, login = Path(self._env.folder), Path(self._setup)
            self._images = reuse.images_worth(self._verdict, Path(self._home), place, login)

    def _reuse_image(self) -> None:
        """uv says of a shadow what it would keep. What can't be reused is fetched."""
        place, shadow = Path(self._env.folder), f"{self._setup}/shadow"
        backend = self._values.torch_backend
        try:
            image = reuse.first_that_fits(self._images, self._verdict, place, backend)
            words, more = self._arguments(shadow)
            if image and words:
                reuse.make_shadow(place, distributions(Path(image.site)), Path(shadow))
                code, said = self._uv.would([*words, "--exact"], more)
                if not code:
                    reuse.copy(self._verdict, place, image, said, self._env.noted("reused"))
        except Exception as error:
            log(f"nothing of the image is reused: {error!r}")
        remove_folder(shadow)

    def _refuse_misfit(self, *, is_own_index: bool = False, is_installed: bool = False) -> None:
        """Before and after it is installed; if no GPU is required, any build will do. With a
        package index of the user's own only uv knows: a dry run prints what it would take, and
        fetches nothing."""
        env, backend = self._env, self._values.torch_backend
        stat = RunFolder(self._home).stat("gpu.json")
        if json.loads(self._values.gpu).get("require") is False or not (stat and stat.st_size):
            return
        target = torch_compat.read_target(self._verdict)
        if not (target.capabilities or target.cuda):
            return
        if is_installed:
            found = [torch_compat.after(target, backend, Path(site)) for site in env.packages]
        else:
            files = filter(os.path.isfile, self._sources.files)
            texts = [Path(name).read_text("utf-8", "replace") for name in files]
            words, _ = self._arguments(env.folder)
            if is_own_index and self._values.installer == "uv" and words[:1] == ["pip"]:
                texts.append(self._uv.would(words)[1])
            found = [torch_compat.before(target, backend, texts)]
        for misfit in filter(None, found):
            raise StepError(*misfit)

    def _compile_ahead(self, installed: str) -> None:
        """Compile what uv unpacks, on idle cores, in memory; once it is installed, everything in
        the environment, while later steps run. Nothing waits for it, and nothing fails because of
        it. On one core fetching and training need that themselves."""
        env, command = self._env, self._values.train_command
        if command and len(os.sched_getaffinity(0)) > 1:
            words = [env.folder, env.tree.path, command, f"{self._home}/cache/uv", installed]
            own = (env.python, "-I", "-S", "-B", MAIN, "python.bytecode")
            for begun in begin_apart(*own, *words, str(os.getpid())):
                write_whole(env.noted("compiling"), f"{identity(begun.pid)}\n")

    def _end_compiling(self) -> None:
        who = RunFolder(self._env.notes).first("python.compiling")
        if is_alive(who):
            os.killpg(int(who.split()[0]), signal.SIGKILL)

    def _install(self) -> None:
        values, sources = self._values, self._sources
        self._refuse_missing(sources.files)
        words = [*sources.arguments, *values.added_arguments]
        if words:
            words = words if values.installer == "pip" else self._arguments(self._env.folder)[0]
            self._run(words, is_exact=not values.conda)
        # A lock does not contain what the profile adds to it.
        self._add(values.added_to_lock if sources.kind == "lock" else ())
        self._add(values.built_last)

    def _arguments(self, folder: str) -> tuple[list[str], dict[str, str]]:
        """Return uv's arguments, none if there is nothing to install, and variables."""
        values, sources = self._values, self._sources
        if sources.kind == "lock":
            words = ["sync", "--frozen", "--inexact", *sources.arguments, *values.lock_options]
            return words, {"UV_PROJECT_ENVIRONMENT": folder}
        words = [*sources.arguments, *sources.of_uv, *values.added_arguments]
        if words and values.names_of_last:
            # A file may name them too: uv skips them there, since the override says that no Python
            # needs them.
            last = f"{self._setup}/last"
            lines = (f"{name}; python_version < '0'\n" for name in values.names_of_last)
            write_whole(last, "".join(lines))
            words += ["--override", last]
        return [*into(folder), *words] if words else [], {}

    def _add(self, words: Sequence[str], *of_uv: str) -> None:
        if words:
            is_pip = self._values.installer == "pip"
            self._run(words if is_pip else [*into(self._env.folder), *words, *of_uv])

    def _run(self, words: Sequence[str], *, is_exact: bool = False) -> None:
        """If it `is_exact`, an environment of ours has nothing else afterwards."""
        is_exact = is_exact and self._env.is_ours
        if self._values.installer == "pip":
            from .pip import PipInstaller  # late: few profiles name it

            pip = PipInstaller(self._env, self._setup, self._retries.must)
            return pip.install(words, doubted=self._is_doubted, exact=is_exact and not self._is_new)
        words = [*words, *(["--exact"] if is_exact else [])]
        if self._is_doubted:
            words += ["--reinstall"]
        elif not self._is_new and self._env.built:
            # uv does not see that files have changed which a build reads.
            words += [w for name in self._local_projects() for w in ("--reinstall-package", name)]
        more = self._arguments(self._env.folder)[1]
        return self._retries.must(lambda: self._uv.run_with_progress(words, more))

    def _local_projects(self) -> list[str]:
        """Return the names of what was installed from folders, as uv reads them."""
        sites = map(Path, self._env.packages)
        notes = [note for site in sites for note in site.glob("*.dist-info/direct_url.json")]
        names = [note.parent.name for note in notes if b'"dir_info"' in note.read_bytes()]
        return [name.partition("-")[0] for name in sorted(names)]


def into(folder: str) -> list[str]:
    return ["pip", "install", "--python", f"{folder}/bin/python"]
