"""Load a profile: find, read, extend, merge, set, check. No network; nothing in it is run.

`--set key.sub=value` sets one value, on top of every file. If the key expects text, the text is
taken as typed, so `--set python.version=3.10` means 3.10. Beside the user's profiles are their own
commands (`secrets`, `notify`): no repository can set them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bootstrap import paths
from bootstrap.errors import ProfileError, UsageError
from bootstrap.paths import expanded, is_foreign_owned, real
from bootstrap.profile.reading import (
    Branch,
    Leaf,
    build,
    choose,
    merge_branches,
    origins,
    read_tree,
    scalar_value,
    unknown_key,
)
from bootstrap.profile.schema import PROFILE, Profile, place_of
from bootstrap.profile.values import PARENT, Field, Section, nearest, ordinary, shown_value
from bootstrap.profile.yaml_source import (
    DEFAULT,
    LARGEST_FILE,
    SET,
    Node,
    Origin,
    ProfileProblem,
    Scalar,
    parse_list,
    raise_problems,
    read_yaml,
    word,
)
from bootstrap.providers import is_provider
from bootstrap.repo.urls import without_user_info
from bootstrap.value import Document, dataclass, field


def read_sets(sets: Iterable[str]) -> tuple[Branch, list[ProfileProblem]]:
    """Return the values of all `--set` options and their problems; the last of equal keys wins."""
    tree, problems = Branch(), []
    for text in sets:
        key, equals, value = text.partition("=")
        try:
            if not equals:
                raise ValueError("expected KEY=VALUE, as in python.version=3.11")
            tree = merge_branches(tree, _read(key, value))
        except ValueError as error:
            problems.append(ProfileProblem(SET, word(key), str(error)))
    return tree, problems


def _read(key: str, text: str) -> Branch:
    path, field = _find(key)
    tree: Branch | Leaf = _value(text, field, key)
    for step in reversed(path):
        tree = Branch({step: tree})
    assert isinstance(tree, Branch)  # noqa: S101  (a path has one step at least)
    return tree


def _find(key: str) -> tuple[list[str], Field]:
    """Return the parts of `key`, and the field there. Raises ValueError."""
    if key == "extends":  # it decides which files are read, and `--set` applies after that
        raise ValueError("can't be set here; choose the profile with --profile")
    field, path, rest = PROFILE, list[str](), key
    while rest and field.kind in ("section", "map"):
        if field.kind == "map":  # the rest is the name of a variable, dots included
            return [*path, rest], Field("text")
        name, _, rest = rest.partition(".")
        inner = field.fields.get(name)
        if inner is None:
            prefix = "".join(f"{step}." for step in path)
            raise ValueError(unknown_key(name, prefix, field.fields))
        path, field = [*path, name], inner
    if rest or not path:
        raise ValueError("there is no such key")
    return path, field


def _value(text: str, field: Field, key: str) -> Leaf:
    if field.optional and text == "null":
        return Leaf(None, SET)
    if field.kind == "section":
        inside = ", ".join(f"{key}.{name}" for name in field.fields)
        raise ValueError(f"this is a section; set one of {inside}")
    if field.kind == "map":
        raise ValueError(f"set one variable at a time, as in {key}.NAME=value")
    if field.item and field.item.section:
        raise ValueError("its items have keys of their own; write them in a profile")
    if field.kind == "list":
        return Leaf(_list(text), SET)
    if field.joins and text.startswith("["):
        return Leaf(", ".join(map(str, _list(text))), SET)
    if field.choices:
        choose(text, field.choices)
    return Leaf(text if field.kind == "text" else scalar_value(text, field.kind), SET)


def _list(text: str) -> list[str]:
    """Read `[a, "b c"]` or `a,b`; an empty text is an empty list."""
    if text.lstrip().startswith("["):
        return parse_list(text, "--set")
    return [part.strip() for part in text.split(",")] if text.strip() else []


LONGEST_CHAIN = 8


@dataclass(frozen=True)
class Layer:
    """One file of a profile's chain of `extends`, before merging."""

    path: Path
    tree: Branch
    problems: tuple[ProfileProblem, ...] = ()

    @property
    def label(self) -> str:
        """As messages name the file."""
        return profile_label(self.path)

    @property
    def is_shipped(self) -> bool:
        return is_shipped(self.path)


@dataclass(frozen=True)
class LoadedProfile:
    """A valid profile, and where each of its values comes from.

    `origins` has the dotted keys that were given; all others have their default.
    `layers` are the files that were read: the profile, then what it extends.
    """

    profile: Profile
    origins: Mapping[str, Origin]
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    sets: tuple[str, ...] = ()

    @property
    def chain(self) -> tuple[Path, ...]:
        """The files that were read: the profile, then what it extends."""
        return tuple(layer.path for layer in self.layers)

    @property
    def needs_provider(self) -> bool:
        """Whether no shipped profile is part of it, so that the box shows which provider it has."""
        return not any(map(is_shipped, self.chain))

    def for_provider(self, provider: str) -> LoadedProfile:
        """Return it based on the profile of `provider`, unless a shipped one is part of it.

        The boxes of another package's provider are as any host's, unless you have a profile of that
        name. Raises ProfileError if `provider` names no profile.
        """
        if not self.needs_provider:
            return self
        from bootstrap.profile.detect_provider import FALLBACK

        try:
            find_profile(provider)
        except ProfileError:
            if not is_provider(provider):
                raise
            provider = FALLBACK
        if not self.layers:
            return read_profile(provider, sets=self.sets)
        layers = (*self.layers, *_chain(find_profile(provider)))
        return _assemble(layers, self.sets, self.profile.name)


def read_profile(
    name_or_path: str | None, *, sets: Sequence[str] = (), repo_root: Path | None = None
) -> LoadedProfile:
    """Load the profile of that name or path, with `sets` (`key.sub=value`) on top.

    None means the `boxstrap.yaml` of the repository at `repo_root`. If there is none, the result
    has only defaults and `sets`; `for_provider` completes it once the box's provider is known.
    Raises ProfileError; its text names every problem with file, line and key.
    """
    if name_or_path is not None:
        path = find_profile(name_or_path)
    elif repo_root and os.path.lexists(repo_root / OF_A_REPOSITORY):
        path = repo_root / OF_A_REPOSITORY
    else:
        return _assemble((), sets, "")
    name = OF_A_REPOSITORY if path.name == OF_A_REPOSITORY else path.stem
    return _assemble(_chain(path), sets, re.sub(r"[^A-Za-z0-9._-]", "-", name))


def _assemble(layers: tuple[Layer, ...], sets: Sequence[str], name: str) -> LoadedProfile:
    set_tree, set_problems = read_sets(sets)
    tree = Branch()
    for layer in reversed(layers):
        tree = merge_branches(tree, layer.tree)
    tree = merge_branches(tree, set_tree)
    problems = [problem for layer in layers for problem in layer.problems] + set_problems
    profile, wrong = build(tree, name)
    known = {problem.key for problem in problems}
    files = [layer.label for layer in layers]
    raise_problems([*problems, *(each for each in wrong if each.key not in known)], files)
    assert profile is not None  # noqa: S101  (without a profile there are problems)
    return LoadedProfile(profile, origins(tree), layers, tuple(sets))


def _chain(path: Path) -> tuple[Layer, ...]:
    """Read the file, then those that it extends."""
    layers: list[Layer] = []
    seen: set[Path] = set()
    following: Path | None = path
    while following is not None:
        _is_ours(following)
        seen.add(real(following))
        source = read_yaml(following, profile_label(following))
        tree, problems = read_tree(source, profile_label(following))
        _resolve_data_paths(tree, following.parent)
        parent, wrong = _parent(tree, following, seen)
        layers.append(Layer(following, tree, (*problems, *wrong)))
        following = parent
    return tuple(layers)


def _resolve_data_paths(tree: Branch, folder: Path) -> None:
    """Make the paths of `data:` absolute: they are relative to the file that names them."""
    leaf = tree.children.get("data")
    items = leaf.value if isinstance(leaf, Leaf) and isinstance(leaf.value, list) else []
    for item in items:
        source = item.get("from", "")
        with contextlib.suppress(ValueError):  # reported when it is checked
            if source and place_of(source) == "local":
                item["from"] = os.path.normpath(folder / expanded(source))


def _is_ours(path: Path) -> None:
    """Raise ProfileError if another user of this machine may have put the file there; UsageError
    if that is the config folder."""
    if path.parent == paths.config_dir():
        paths.refuse_others_word(path)
    strange = [
        each for each in (path, real(path)) if os.path.lexists(each) and is_foreign_owned(each)
    ]
    if not strange or is_shipped(path):
        return
    from bootstrap.repo.local import is_trusted
    from bootstrap.repo.place import locate as find_place

    for each in strange:
        try:
            folder = find_place(each.parent).root
        except UsageError:
            folder = real(each.parent)
        if not is_trusted(folder):
            raise ProfileError(
                "this profile belongs to another user. It was not used.",
                where=profile_label(path),
                hint=f"If you trust it: git config --global --add safe.directory {folder}",
            )


def _parent(tree: Branch, path: Path, seen: set[Path]) -> tuple[Path | None, list[ProfileProblem]]:
    leaf = tree.children.get("extends")
    if not isinstance(leaf, Leaf) or leaf.value is None:
        return None, []
    try:
        parent = _named(PARENT(str(leaf.value)), path.parent)
        if real(parent) in seen:
            raise ValueError("extends itself in a circle")
        if len(seen) >= LONGEST_CHAIN:
            raise ValueError(f"more than {LONGEST_CHAIN} files")
    except ValueError as error:
        return None, [ProfileProblem(leaf.origin, "extends", str(error))]
    except ProfileError as error:
        message = f"{error.what}. {error.hint}" if error.hint else error.what
        return None, [ProfileProblem(leaf.origin, "extends", message)]
    return parent, []


def _named(text: str, folder: Path) -> Path:
    if not is_path(text):
        path = shipped_profile(text)
        if path is None:
            raise unknown_name(text, shipped_ones())
        return path
    path = folder / expanded(text)
    if not os.path.isfile(path):  # noqa: PTH113 - pathlib's raises for a name that is too long
        raise ValueError(f"there is no file {profile_label(path)}")
    return path


_NO_DESCRIPTION = ("yaml-language-server:", "!", "-*-")


@dataclass(frozen=True)
class ListedProfile(Document):
    """A profile, and whether it is the user's own."""

    KEYS = "name, path, own"

    name: str
    path: Path
    description: str
    own: bool


def listed() -> list[ListedProfile]:
    """Return the user's own profiles, then the shipped ones that they do not replace."""
    own = users_own()
    found = {**own, **shipped_ones(), **own}
    return [
        ListedProfile(name, path, describe(path), own=name in own) for name, path in found.items()
    ]


def describe(path: Path) -> str:
    """Return the first comment line at the top of the file, or ""."""
    try:
        with paths.open_regular(path) as file:
            text = file.read(LARGEST_FILE).decode(errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        words = line.lstrip("# ").strip()
        if words and not words.startswith(_NO_DESCRIPTION):
            return "".join(char for char in words if char.isprintable())[:100]
    return ""


OF_A_REPOSITORY = paths.PROFILE
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_OTHERS = frozenset({"config", "groups", "notify"})
"""Files of the configuration folder that are no profiles."""


def shipped_profile(name: str) -> Path | None:
    return _in(paths.shipped("profiles"), name)


def is_shipped(path: Path) -> bool:
    return paths.real(path).parent == paths.shipped("profiles").resolve()


def is_path(text: str) -> bool:
    """Whether `text` is meant as a path rather than as a name."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def find_profile(name_or_path: str) -> Path:
    """Return the file that is meant: a path, the user's profile, a shipped one, or a file here.
    Raises ProfileError that lists the known names."""
    if is_path(name_or_path):
        return paths.expanded(name_or_path)
    if found := _in(paths.config_dir(), name_or_path) or shipped_profile(name_or_path):
        return found
    if _NAME.fullmatch(name_or_path) and Path(name_or_path).is_file():
        return Path(name_or_path)
    raise unknown_name(name_or_path, shipped_ones() | users_own())


def shipped_ones() -> dict[str, Path]:
    return _all_in(paths.shipped("profiles"))


def users_own() -> dict[str, Path]:
    return _all_in(paths.config_dir())


def unknown_name(name: str, names: Iterable[str]) -> ProfileError:
    close = nearest(name, names)
    hint = f"Did you mean {close}? " if close else ""
    return ProfileError(
        f"there is no profile {shown_value(name)}",
        hint=f"{hint}There are: {', '.join(names)}; or give a path, as in ./a100.yaml.",
    )


def profile_label(path: Path) -> str:
    """Return `path` as messages name it: as short as possible, and printable."""
    if is_shipped(path):
        return f"shipped {path.name}"
    text = str(path)
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(folder):
            text = prefix + str(path.relative_to(folder))
            break
    return text if text.isprintable() else shown_value(text, 200)


def _all_in(folder: Path) -> dict[str, Path]:
    files = sorted(folder.glob("*.yaml"))
    return {path.stem: path for path in files if _in(folder, path.stem)}


def _in(folder: Path, name: str) -> Path | None:
    path = folder / f"{name}.yaml"
    is_name = _NAME.fullmatch(name) and name not in _OTHERS
    return path if is_name and path.is_file() else None


def read_commands(file: Path, example: str) -> dict[str, str]:
    """Read commands by name from a file of lines `NAME: command`; none if there is no file. Raises
    UsageError as `read_own_yaml`, or if it is not like `example`."""
    commands = {}
    for name, command in read_own_yaml(file):
        if not (isinstance(command, Scalar) and command.text.strip() and command.tag == "str"):
            raise UsageError(
                f"line {name.line}: a command is expected, as in `{example}`",
                where=profile_label(file),
            )
        commands[name.text] = command.text
    return commands


def read_own_yaml(file: Path) -> Sequence[tuple[Scalar, Node]]:
    """Return the entries of a file of the config folder, if it is there. Raises UsageError."""
    if not file.exists():
        return ()
    paths.refuse_others_word(file)
    yaml = read_yaml(file, profile_label(file))
    if yaml.problems:
        raise UsageError(yaml.problems[0].message, where=profile_label(file))
    return yaml.keys.entries


_PUBLIC_KEY = r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]{40,}={0,2}( .*)?"
_LONGEST_KEY = 16 * 1024


def public_keys(profile: Profile) -> list[str]:
    """Return the keys that may log in: the script has them in it. Raises ProfileError."""
    return [public_key(entry) for entry in profile.ssh.authorized_keys]


def check_public_keys(loaded: LoadedProfile) -> None:
    """Read the profile's public keys, before any box is contacted. Raises ProfileError."""
    if loaded.profile.ssh.authorized_keys:
        try:
            public_keys(loaded.profile)
        except ProfileError as error:
            origin = loaded.origins.get("ssh.authorized_keys")
            raise ProfileError(error.what, where=str(origin or ""), hint=error.hint) from None


def public_key(entry: str) -> str:
    """Return the line of one public key file. Raises ProfileError."""
    path = expanded(entry)
    try:
        ordinary(str(real(path)))
        with paths.open_regular(path) as file:
            line = file.read(_LONGEST_KEY).decode().strip()
    except (OSError, ValueError) as error:
        raise ProfileError(
            f"ssh.authorized_keys: {entry} can't be read: {error}",
            hint="Name a public key file (*.pub) that is there.",
        ) from error
    if "PRIVATE KEY" in line:
        raise ProfileError(
            f"ssh.authorized_keys: {entry} is a private key; it never leaves this machine",
            hint=f"You probably mean {entry}.pub",
        )
    if not re.fullmatch(_PUBLIC_KEY, line) or not line.isprintable():
        raise ProfileError(
            f"ssh.authorized_keys: {entry} is not a public key",
            hint="A public key file has one line that begins with its type, as in ssh-ed25519.",
        )
    return line


WIDEST = 60  # columns; a longer `key: value` moves only its own remark to the right


def origin_lines(
    profile: Profile, origins: Mapping[str, Origin], *, described: bool = False
) -> list[str]:
    """Return `key: value # origin` for every key, as `plan --show-origin` prints it. With
    `described`, each key's description follows, as `profiles --show` prints it."""
    found = list(_origin_entries(profile, origins))
    heads = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value, *_ in found]
    width = max((len(head) for head in heads if len(head) <= WIDEST), default=0)
    return [
        f"{head:<{width}}  # {origin}" + (f" | {description}" if described else "")
        for head, (_, _, origin, description) in zip(heads, found, strict=True)
    ]


def _origin_entries(
    section: Section, origins: Mapping[str, Origin], prefix: str = ""
) -> Iterator[tuple[str, object, Origin, str]]:
    """Yield every key of `section` with value, origin and description, in the schema's order."""
    for name, entry in section.fields.items():
        key, value = prefix + name, getattr(section, name)
        note = entry.description
        if isinstance(value, Section):
            yield from _origin_entries(value, origins, f"{key}.")
        elif isinstance(value, dict) and value:
            named = ((f"{key}.{item}", text) for item, text in value.items())
            yield from ((a, text, origins.get(a, DEFAULT), note) for a, text in named)
        else:
            if key == "git.url" and value:
                value = without_user_info(value)
            if isinstance(value, list):
                value = [each.as_dict() if isinstance(each, Section) else each for each in value]
            yield key, value, origins.get(key, DEFAULT), note
