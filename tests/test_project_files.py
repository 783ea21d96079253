"""The files around the code agree with each other: Makefile, pre-commit hooks, CI, supported Python versions."""

import re
import subprocess
import tomllib
from pathlib import Path

from anyplug.rego.yaml import load

ROOT = Path(__file__).parent.parent


def test_make_without_a_target_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    done = subprocess.run(["make", "-s", "-C", ROOT], capture_output=True, text=True, check=True)
    assert sorted(line.split()[0] for line in done.stdout.splitlines()) == sorted(phony[1].split())


def test_pre_commit_runs_the_checks_of_make_check():
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.split("\ncheck:")[1].split("\n\n")[0].splitlines()[1:]
    checks = [line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in recipe]
    hooks = re.findall(r"entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert [hook.replace(" --force-exclude", "") for hook in hooks] == checks


def test_ci_tests_every_python_that_the_package_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    assert re.findall(r'"(.+?)"', matrix[1]) == named
    assert "- run: .ci/run\n" in workflow


def test_the_quick_suite_has_tests_of_every_folder():
    quick = (ROOT / "tests" / "quick.txt").read_text().split()
    folders = {path.parent.relative_to(ROOT).parts[1] for path in ROOT.glob("tests/*/**/test_*.py")}
    needs_other_programs = {"clients"}
    assert folders - {Path(line.partition("::")[0]).parts[1] for line in quick} == needs_other_programs


def test_the_readme_can_be_read_in_two_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_yaml_files_can_be_parsed():
    found = [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(found) > 4
    for path in found:
        assert load(path.read_text()), path
