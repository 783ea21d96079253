"""The wheel installs and runs outside the checkout."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

from anyplug.manage import scaffold
from anyplug.policy.builtins import TABLE
from anyplug.runtime.processes.toolchain import find_uv

CHECKOUT = Path(__file__).parent.parent
IN_NODE = ("runner.cjs", "electron.cjs", "hooks.mjs")  # what runs in a plugin's own process


def test_the_wheel_runs_the_demo_outside_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with ZipFile(wheel) as packed:
        assert {f"anyplug/formats/workbench/{name}" for name in IN_NODE} <= set(packed.namelist())
        assert "anyplug/policy/opencode/anyplug-policy.js" in packed.namelist()
        for example in "careful", "pomodoro":
            copied = packed.read(f"anyplug/examples/{example}/anyplug_ext.py")
            assert copied == packed.read("anyplug/ext/__init__.py")
        assert {f"anyplug/policy/builtins/{name}.rego" for name in (*TABLE, "shared")} <= set(packed.namelist())
    venv.create(tmp_path / "venv")  # to put pip in takes longer than all else
    python = tmp_path / "venv" / "bin" / "python"
    install = [find_uv(), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # What it depends on is installed already, beside the program that runs the tests.
    [packages] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(ours + "\n")
    (packages / "_editable_impl_anyplug.pth").unlink(missing_ok=True)

    where = subprocess.run(
        [str(python), "-c", "import anyplug; print(anyplug.__file__)"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(tmp_path))
    program = str(tmp_path / "venv" / "bin" / "anyplug")
    shown = subprocess.run([program, "demo"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "its chain is intact" in shown.stdout
    assert re.search(r"files, network, programs \(!\)", shown.stdout)
    assert re.search(r"^ *\(!\) \w+", shown.stdout, re.MULTILINE)  # the sign is explained
    assert [names for _, _, names in os.walk(os.environ["ANYPLUG_HOME"]) if names] == []

    for format, kind in scaffold.KINDS.items():
        for language in kind.languages:
            options = ["--format", format, "--lang", language, "--into", str(tmp_path / language)]
            subprocess.run([program, "new", format, *options], cwd=tmp_path, check=True, capture_output=True)
            written = {path.name for path in (tmp_path / language / format).rglob("*") if path.is_file()}
            assert written == {os.path.basename(name) for name in scaffold.draft(format, format, language).files}
