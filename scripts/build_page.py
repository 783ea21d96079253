"""Build the console's page from web/ into the package; `--check` fails if a new build differs from it."""

import argparse
import filecmp
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
PAGE = ROOT / "src" / "anyplug" / "frontends" / "console" / "page"


def npm(*words: str) -> None:
    """Run npm in web/, quietly unless it fails."""
    done = subprocess.run(["npm", *words], cwd=WEB, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"`npm {' '.join(words)}` failed in web/:\n{done.stdout}{done.stderr}")


def install() -> None:
    """Install exactly the locked packages, unless that was done already."""
    installed, locked = WEB / "node_modules" / ".package-lock.json", WEB / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < locked.stat().st_mtime:
        npm("ci")
        installed.touch()


def differing(built: Path) -> list[str]:
    """Return the files that differ; compressed ones by their content, because releases of zlib differ."""
    found = {path.relative_to(built) for path in built.rglob("*") if path.is_file()}
    committed = {path.relative_to(PAGE) for path in PAGE.rglob("*") if path.is_file()}

    def is_same(name: Path) -> bool:
        if name.suffix == ".gz":
            return gzip.decompress((built / name).read_bytes()) == gzip.decompress((PAGE / name).read_bytes())
        return filecmp.cmp(built / name, PAGE / name, shallow=False)

    return sorted(str(name) for name in found ^ committed | {name for name in found & committed if not is_same(name)})


def main() -> None:
    """Build, or build elsewhere and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with what is committed; change nothing")
    is_check = parser.parse_args().check
    if not shutil.which("npm"):
        why = "npm is missing, which comes with Node 20 or newer"
        sys.exit(why) if not is_check or os.environ.get("CI") else print(f"the page was not rebuilt: {why}")
        return
    install()
    if not is_check:
        npm("run", "build")
        return
    with tempfile.TemporaryDirectory() as folder:
        npm("run", "build", "--", "--outDir", folder, "--emptyOutDir")
        if changed := differing(Path(folder)):
            sys.exit(f"the console's page is not what web/ builds ({', '.join(changed[:5])}): run `make web`")


if __name__ == "__main__":
    main()
