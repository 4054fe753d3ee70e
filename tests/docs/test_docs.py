"""The pages are checked against the code: generated parts, commands, profiles, links, systems."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression

from bootstrap import errors
from bootstrap.errors import EXIT_CODES
from bootstrap.fleet.export import EXPORTS
from bootstrap.link import parse_host
from bootstrap.profile import PROFILE
from bootstrap.profile.load import read_profile
from bootstrap.profile.schema import taking_keys
from bootstrap.providers import CLASSES, NAMES, PROVIDERS
from bootstrap.setup.door_table import DOORS
from bootstrap.steps.event_codes import CODES
from bootstrap.tasks import NAMES as TASKS
from bootstrap.tasks import find
from bootstrap.tasks.parser import parse_command
from tools.docs import site_links
from tools.docs.generate import PART, ROOT, documents, renewed

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
OURS = r"(?:bootstrap|templates|tests|profiles|docs|\.ci)/[\w.*/-]*"
FILE = re.compile(rf"{OURS}|pyproject\.toml|[a-z_]+/[a-z_]+\.(?:py|sh)")
PAGES = {str(page.relative_to(ROOT)): page for page in documents()}

each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
each_task = pytest.mark.parametrize("task", TASKS)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands_in(text: str) -> list[list[str]]:
    """What follows `boxstrap` in the shell blocks of a page and in its lines of code."""
    lines = [line for kind, block in BLOCK.findall(text) if not kind for line in block.splitlines()]
    lines += re.findall(r"`(boxstrap [^`]+)`", text)
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("boxstrap ")]
    return [line[1:] for line in words]


def files_in(text: str) -> list[str]:
    """The project's own files and folders that a page names as code."""
    words = [
        word for code in re.findall(r"`([^`]+)`", BLOCK.sub("", text)) for word in code.split()
    ]
    return [word for word in words if FILE.fullmatch(word) and "NAME" not in word]


def found(name: str) -> list[Path]:
    """The files of this name in the root, `bootstrap/` or `templates/`, as pages shorten it."""
    return [*ROOT.glob(name), *(ROOT / "bootstrap").glob(name), *(ROOT / "templates").glob(name)]


def headings(path: Path) -> set[str]:
    """The anchors of a page, as sites that render it make them."""
    found = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@each_page
def test_the_generated_parts_of_each_docs_page_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert renewed(text) == text, "make docs"


@each_page
def test_every_link_of_a_docs_page_leads_to_an_existing_file_and_heading(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


@each_page
def test_every_file_that_a_docs_page_names_exists(page: Path) -> None:
    for name in files_in(page.read_text(encoding="utf-8")):
        assert found(name), name


def test_each_word_in_the_tables_of_architecture_md_is_in_the_file_it_names() -> None:
    head = "| what | file | look for |\n|---|---|---|\n"
    tables = text_of("docs/architecture.md").split(head)[1:]
    lines = (line for table in tables for line in table.partition("\n\n")[0].splitlines())
    rows = [line.split("|")[2:4] for line in lines]
    assert len(rows) >= 90
    for files, words in rows:
        paths = [path for name in files_in(files) for path in found(name)]
        inside = [sub for path in paths for sub in (path.iterdir() if path.is_dir() else [path])]
        text = "".join(sub.read_text(encoding="utf-8") for sub in inside if sub.is_file())
        for word in re.findall(r"`([^`]+)`", words):
            assert re.search(rf"(?<!\w){re.escape(word)}", text), (files, word)


@each_page
def test_every_boxstrap_command_on_a_docs_page_can_be_parsed(page: Path) -> None:
    """Each is parsed by the program's own parser, which refuses unknown words."""
    for words in commands_in(page.read_text(encoding="utf-8")):
        is_of_program = words[0].startswith("-") or words[0] == "help"
        if is_of_program or words[0].isupper():  # boxstrap --list, boxstrap TASK --help
            continue
        parse_command(find(words[0]), words[1 : words.index("--") if "--" in words else None])


@pytest.mark.parametrize("name", NAMES)
def test_the_docs_section_of_each_provider_agrees_with_its_class(name: str) -> None:
    """`test_every_boxstrap_command_on_a_docs_page_can_be_parsed` checks that both can be parsed."""
    provider = PROVIDERS[name]
    section = text_of("docs/providers.md").partition(f"\n## {provider.title}\n")[2]
    section = " ".join(section.partition("\n## ")[0].split())
    page = text_of("docs/providers.md").partition(f"\n## {provider.title}\n")[2]
    begin, end = commands_in(page.partition("\n## ")[0])[:2]
    assert begin[:3] == ["up", "--provider", name]
    assert end[:2] == ["down", "--host"]
    assert parse_host(end[2]).is_rented
    assert end[2].startswith(f"{name}:")
    stops = provider.stops
    said = [f"keeps {stops.keeps}", f"costs {stops.costs}"] if stops else ["There is no stopping."]
    said += [f"`{place}`" for place in (provider.keys.variable, *provider.keys.files)]
    for words in (
        *said,
        "**Price.**",
        "**What stops the bill.**",
        "**Verified by**",
        "**Never tried on a real",
    ):
        assert words in section, words


@each_page
def test_every_yaml_block_on_a_docs_page_loads_as_a_profile(page: Path, tmp_path: Path) -> None:
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "yaml":
            file = tmp_path / "boxstrap.yaml"
            file.write_text(block, encoding="utf-8")
            read_profile(str(file))


def test_the_consent_table_of_the_profiles_page_names_each_key_that_takes_something() -> None:
    table = text_of("docs/profiles.md").partition("| key | what it takes |\n")[2]
    named = {*re.findall(r"`([\w.]+)`", table.partition("\n\n")[0])}
    assert [key for key in taking_keys() if not {key, key.partition(".")[0]} & named] == []


def test_the_docs_tests_find_commands_in_readme_and_commands_page_and_a_profile() -> None:
    assert len(commands_in(text_of("README.md"))) >= 6
    assert len(commands_in(text_of("docs/commands.md"))) >= 20
    assert sum(kind == "yaml" for kind, _ in BLOCK.findall(text_of("README.md"))) == 1


@each_task
def test_each_command_has_a_section_with_options_and_an_example_in_the_docs(task: str) -> None:
    section = text_of("docs/commands.md").partition(f"\n## {task}\n")[2].partition("\n## ")[0]
    assert f"<!-- begin: options {task} -->" in section
    assert any(words[0] == task for words in commands_in(section))


def test_the_commands_page_has_no_section_for_a_command_that_does_not_exist() -> None:
    found = re.findall(r"^## (.*)$", text_of("docs/commands.md"), re.MULTILINE)
    assert sorted(found) == sorted(TASKS)


def test_every_key_of_a_profile_is_in_the_table_of_the_profiles_page() -> None:
    text = text_of("docs/profiles.md")
    for key, _ in PROFILE.leaves():
        assert f"| `{key}` |" in text


def test_every_error_code_of_an_event_is_on_the_troubleshooting_page() -> None:
    text = text_of("docs/troubleshooting.md")
    for code in CODES:
        assert f"| `{code}` |" in text


def test_every_exit_code_is_on_the_troubleshooting_page() -> None:
    section = (
        text_of("docs/troubleshooting.md").partition("\n## How it ends\n")[2].partition("\n## ")[0]
    )
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert listed == {0, *EXIT_CODES.values()}


def test_every_error_class_has_an_exit_code() -> None:
    tree = re.findall(r"(\w+Error) ", str(errors.__doc__))
    assert len(tree) == 16
    listed = {kind for name, kind in vars(errors).items() if name.endswith("Error")}
    assert sorted(tree) == sorted(kind.__name__ for kind in listed)
    of_usage = {errors.ProfileError, errors.NoSuchRunError, errors.WhichBoxError}
    assert listed - of_usage == set(EXIT_CODES) - {KeyboardInterrupt}


def test_every_decision_record_is_listed_and_has_its_four_headings() -> None:
    listed = text_of("docs/adr/README.md")
    pages = sorted((ROOT / "docs/adr").glob("0*.md"))
    assert len(pages) >= 13
    numbers = [int(page.name[:4]) for page in pages]  # some are reserved for work that isn't here
    assert len(set(numbers)) == len(numbers)
    for page in pages:
        assert page.read_text(encoding="utf-8").startswith(f"# {int(page.name[:4])}. ")
        assert f"]({page.name})" in listed
        titles = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert titles == ["Context", "Decision", "Rejected", "Consequences"]


def test_every_decision_record_that_the_code_names_exists() -> None:
    named = re.findall(r"docs/adr/[\w-]+\.md", "".join(_sources()))
    assert named
    for name in named:
        assert (ROOT / name).is_file(), name


def _sources() -> list[str]:
    files = [ROOT / "pyproject.toml", *(ROOT / "bootstrap").rglob("*.py")]
    return [file.read_text(encoding="utf-8") for file in files]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_class_that_the_architecture_page_or_contributing_names_exists(page: str) -> None:
    named = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text_of(page))
    there = re.findall(r"^(?:class )?(\w+)", "".join(_sources()), re.MULTILINE)
    assert len(named) >= 3
    assert not {*named} - {*there}


def test_every_generated_part_of_a_docs_page_has_a_generator_and_an_end() -> None:
    for page in documents():
        text = page.read_text(encoding="utf-8")
        assert text.count("<!-- begin:") == text.count("<!-- end -->") == len(PART.findall(text))


PROMISE = re.compile(r"`([^`]*\bpytest\s+tests/[^`]*|-k\s+[^`]*)`")
TESTS_OF = [
    page
    for page in PAGES
    if page.startswith("docs/") and re.search(r"pytest\s+tests/", text_of(page))
]


def promised() -> list[tuple[str, list[str], str]]:
    """Page, files and words of `-k` of each command that shows a promise; `-k` alone goes on."""
    found: list[tuple[str, list[str], str]] = []
    for page in TESTS_OF:
        files: list[str] = []
        for command in PROMISE.findall(text_of(page)):
            words = shlex.split(command)
            files = [word for word in words if word.startswith("tests/")] or files
            assert words.count("-k") <= 1, f"{page}: {command}: the last -k alone counts"
            found.append((page, files, words[words.index("-k") + 1] if "-k" in words else ""))
    return found


def _says(test: str) -> Any:
    return lambda word, **_: word.casefold() in test


def _tests_in(place: str) -> list[str]:
    at = ROOT / place
    texts = (
        file.read_text("utf-8") for file in ([*at.rglob("test_*.py")] if at.is_dir() else [at])
    )
    return re.findall(r"^ *(?:async )?def (test\w*)", "\n".join(texts).casefold(), re.MULTILINE)


def test_every_test_and_pytest_command_in_the_docs_names_tests_that_exist() -> None:
    """Each file that is named has one that the words of `-k` choose by its name."""
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", text_of(page))}
    lacking = sorted(named - {*_tests_in("tests")})
    for page, files, words in promised():
        chosen = Expression.compile(words or "test")
        for file in files:
            if not any(chosen.evaluate(_says(test)) for test in _tests_in(file)):
                lacking.append(f"{page}: {file} -k {words!r}")
    assert not lacking, "\n".join(lacking)


ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/systems.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| **")
]
GUIDES = (  # the names in guides for those who rent a GPU for the first time
    *("Vast.ai", "RunPod", "RunPod serverless", "Lambda", "Paperspace", "Gradient", "CoreWeave"),
    *("EC2", "SageMaker", "SageMaker Notebooks", "AWS Batch", "Fargate", "Hugging Face Jobs"),
    *("Google Cloud", "Google Colab", "Vertex AI", "Azure", "Azure ML Notebooks", "Azure Batch"),
    *("Azure Machine Learning", "Oracle", "IBM", "Kubernetes", "Docker", "Slurm", "local"),
    *("university", "Mac", "WSL", "spot"),
)


def test_each_row_of_the_systems_page_has_four_filled_cells() -> None:
    assert len(ROWS) >= 25
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_each_provider_each_start_up_script_and_each_guides_system_is_on_the_systems_page() -> None:
    for name in GUIDES:
        assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", row[0]) for row in ROWS), name
    for name in CLASSES:
        served = [row for row in ROWS if f"account `--provider {name}`" in row[1]]
        assert len(served) == 1, name
        assert "::test_" in served[0][3], name
    for name in (*DOORS, *EXPORTS, "oneliner"):
        assert any(re.search(rf"doors? [^,]*`{name}`|`, `{name}`", row[1]) for row in ROWS), name


def test_every_provider_and_start_up_script_that_the_systems_page_names_exists() -> None:
    doors = {*DOORS, *EXPORTS, "oneliner"}
    for row in ROWS:
        accounts = set(re.findall(r"`--provider ([a-z0-9-]+)`", row[1]))
        assert accounts <= set(CLASSES), row[0]
        named = set(re.findall(r"`([a-z0-9-]+)`", row[1]))
        assert named <= doors, row[0]


def test_each_row_of_the_systems_page_names_a_test_or_says_never_tried() -> None:
    for row in ROWS:
        shown = row[3]
        named = re.findall(r"`(\w[\w/]*\.py)(?:::(test_\w+))?`", shown)
        for file, test in named:
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), test
        assert named or "never tried" in shown or "checks" in shown, row[0]


def test_the_checks_workflow_runs_on_macos() -> None:
    """The one row whose proof is no test."""
    assert "macos-latest" in (ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8")
    assert Path(ROOT / "docs/support.md").is_file()


SOUND = '<a id="top"></a><a href="b.html#part">b</a><a href="https://example.org">x</a>'
OTHER = '<h2 id="part">Part</h2><a href="sub/">s</a><img src="a.svg"><a href="index.html#top">t</a>'


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("", "", None),
        ("b.html#part", "c.html", "index.html: c.html is not there"),
        ("b.html#part", "b.html#past", "index.html: b.html#past has no such anchor"),
        ('href="https://example.org">', 'href="#none">', "index.html: #none has no such anchor"),
        ("a.svg", "b.svg", "b.html: b.svg is not there"),
        ("sub/", "sup/", "b.html: sup/ is not there"),
        ("Part</h2>", '</h2><a href="/c.html">', "b.html: /c.html is not there"),
        ("<img src", "<script src=https://example.org/x.js></script><img src", "from outside"),
        ("<img src", "<link href=//example.org/x.css><img src", "from outside"),
    ],
)
def test_the_docs_site_check_finds_dead_links_missing_anchors_and_outside_files(
    tmp_path: Path, was: str, becomes: str, said: str | None
) -> None:
    (tmp_path / "sub").mkdir()
    root = '<a href="/b.html#part"></a>'
    for name, text in {"index": SOUND, "b": OTHER, "sub/index": "<p>", "404": root}.items():
        changed = text.replace(f"{was}", becomes) if was and name != "404" else text
        (tmp_path / f"{name}.html").write_text(changed)
    (tmp_path / "a.svg").write_text("<svg/>")
    found = list(site_links.dead_links(tmp_path))
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]
