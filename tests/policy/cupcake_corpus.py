"""Events on which our builtins are compared with Cupcake's own, and what Cupcake's own decide.

The events are made here, always the same. `cupcake_verdicts.json` holds one digit for each event and builtin: whether
the original refuses it under OPA. It also names the files that were asked: repository, commit and path, and the hash
that git gives their content (`git hash-object FILE`). To regenerate it, put the original's builtin policies and the
helpers that they import into FOLDER, unchanged, with an `origin.json` that says where each file comes from:

    python tests/policy/cupcake_corpus.py FOLDER path/to/opa
"""

import functools
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anyplug.policy import builtins
from anyplug.policy.agent_events import read

VERDICTS = Path(__file__).parent / "cupcake_verdicts.json"
PROJECT = "/nowhere/project"
BUILTINS = {
    "protected_paths": "halt",
    "rulebook_security_guardrails": "halt",
    "git_block_no_verify": "deny",
    "system_protection": "halt",
    "sensitive_data_protection": "deny",
    "cupcake_exec_protection": "halt",
}
PATHS = [f"{PROJECT}/vault/", "src/legacy/", "secrets.txt", "*.lock", f"{PROJECT}/docs/adr", "/nowhere/shared/"]
WHOLE = frozenset({"system_protection", "sensitive_data_protection", "cupcake_exec_protection"})  # for all projects
ENABLED = {name: ({"paths": PATHS} if name == "protected_paths" else {}) for name in BUILTINS}
TARGETS = [
    f"{PROJECT}/vault/key", f"{PROJECT}/vault", f"{PROJECT}/vault/", f"{PROJECT}/vault/*", f"{PROJECT}/VAULT/Key",
    f"{PROJECT}/vault/../vault/x", "vault/key", "./vault", f"{PROJECT}/*", PROJECT, f"{PROJECT}/", "/nowhere",
    "/nowhere/*", "/", "/*", ".", "./", "./*", "*", "..", "../*", "../..", "../shared/x", "/nowhere/shared",
    "/nowhere/sh*", "src/legacy/a.rs", "src/legacy", "src", "src/*", "./src/legacy/", "secrets.txt",
    "a/secrets.txt", "yarn.lock", "a/b/poetry.lock", "docs/adr/1.md", f"{PROJECT}/docs", "docs/*", ".cupcake",
    ".cupcake/rulebook.yml", "./.cupcake/", "a/.cupcake/x", "/etc/passwd", "/usr/bin/env", "/boot/x", "/proc/1/mem",
    "~/.ssh/id_rsa", "~/.ssh/config", "/root/.bashrc", "/private/var/x", "/Library/LaunchAgents/x", ".env",
    ".env.production", "config/credentials.json", "id_rsa", "server.key", "cert.pem", ".npmrc", "~/.aws/config",
    "cookies.txt", "api_key.txt", "README.md", "build/", "build/out.js", "main.go", "'my file.txt'", "$BUILD",
]  # fmt: skip
COMMANDS = [
    "rm -rf {}", "rm {}", "rmdir {}", "mv {} /nowhere/x", "mv a {}", "cp a {}", "cp -r {} /nowhere/x", "cat {}",
    "ls -la {}", "grep -r x {}", "head -3 {}", "tail {}", "wc -l {}", "sort {}", "stat {}", "sed -i s/a/b/ {}",
    "sed -n 1p {}", "sed s/a/b/ {}", "awk 1 {}", "echo x > {}", "echo x >> {}", "cat a > {}", "cat {} > b",
    "cat {} | tee b", "cat a | tee {}", "tee {} < a", "cat {} | grep x", "chmod -R 777 {}", "chown -R a {}",
    "find {} -delete", "find {} -name x", "find {} -type f -exec rm -f a +", "touch {}", "truncate -s0 {}",
    "ln -s {} l", "ln -sf a {}", "python -c \"open('{}','w')\"", "node -e \"require('{}')\"", "python3 x.py {}",
    "tar xf a.tar -C {}", "git add {}", "git rm -r {}", "sudo rm {}", "cd {} && rm x", "diff a {}", "dd of={}",
    "rsync a {}", "sh -c 'rm -rf {}'", "true; rm -rf {}", "less {} && rm {}",
]  # fmt: skip
GIT = [
    "git commit --no-verify", "git commit -m x --no-verify", "git  commit   --no-verify", "git push --no-verify",
    "git merge --no-verify a", "git commit -n", "git commit -nm x", "git commit -an", "git commit -anm x",
    "git commit -m 'no verify'", "git commit -m x", "git push", "git -C . commit --no-verify",
    "cd a && git commit --no-verify", "git config core.hooksPath /dev/null", "git config core.hookspath /dev/null",
    "rm .git/hooks/pre-commit", "rm -rf .git/hooks", "unlink .git/hooks/pre-push", "trash .git/hooks",
    "mv .git/hooks a", "mv .git/hooks/pre-commit a", "chmod -x .git/hooks/pre-commit", "chmod a-x .git/hooks/*",
    "chmod +x .git/hooks/pre-commit", "ls .git/hooks", "cat .git/hooks/pre-commit", "git commit -v",
    "GIT COMMIT --NO-VERIFY", "env git commit --no-verify", "git commit --amend --no-edit --no-verify",
    "git config --get user.name", "git status", "git log -n 3", "git commit -S -m x",
]  # fmt: skip
PROGRAMS = [
    "cupcake eval", "cupcake init", "./cupcake eval", "/usr/local/bin/cupcake eval", "/usr/bin/cupcake",
    "~/.cargo/bin/cupcake", "a;cupcake x", "a && cupcake x", "a || cupcake x", "a | cupcake x", "`cupcake x`",
    "$(cupcake x)", "cargo run --bin cupcake", "cargo r -p cupcake", "cargo install cupcake",
    "target/release/cupcake eval", "target/debug/cupcake", "./target/x86_64-unknown/cupcake", "/opt/cupcake/bin/x",
    "brew install cupcake", "apt install cupcake", "sh cupcake.sh", "bash setup-cupcake.sh", "source cupcake.env",
    "eval cupcake x", "exec cupcake x", "alias c=cupcake", "gpg --export-secret-keys", "gpg --export a",
    "ssh-add -l", "ssh-add -L", "aws configure get a", "gcloud auth print-access-token", "docker login",
    "security dump-keychain", "security find-generic-password -w", "doas ls", "sudo ls", "npm test", "make",
    "go build ./...", "pytest -q", "echo done", "date", "true", "cat package.json", "ls", "node index.js",
]  # fmt: skip
FILE_TOOLS = {
    "edit": "filePath", "write": "filePath", "read": "filePath", "NotebookEdit": "notebook_path", "grep": "path",
    "glob": "pattern", "webfetch": "url", "task": "prompt",
}  # fmt: skip
SENSITIVE = [
    "app.sqlite", "users.db", "database.yml", "wp-config.php", ".htpasswd", ".netrc", ".gitconfig", "token.json",
    "private.txt", "auth.json", "server.crt", "store.jks", "kubeconfig", ".docker/config.json", ".cargo/credentials",
    "known_hosts", "authorized_keys", "session.json", "passwd", "apikey.txt", ".m2/settings.xml", "nuget.config",
    "author.py", "tokenizer.py", "privateer.md", "sessions_view.go", "authority.ts", "cookiecutter.json",
    "session.py", "src/auth.ts",
]  # fmt: skip


def events() -> Iterator[dict[str, Any]]:
    """Make the events, as OpenCode's plugin sends them."""
    lines = [command.replace("{}", target) for command in COMMANDS for target in TARGETS]
    reading = [f"{verb} {target}" for verb in ("cat", "grep x", "head") for target in SENSITIVE]
    for line in (*lines, *GIT, *PROGRAMS, *reading):
        yield _event("bash", command=line)
    for target in (*TARGETS, *SENSITIVE):
        for tool, key in FILE_TOOLS.items():
            yield _event(tool, **{key: target})
        yield _event("MultiEdit", edits=[{"file_path": "a.py"}, {"file_path": target}])


@functools.cache
def documents() -> list[dict[str, Any]]:
    """Give the events as policies see them."""
    config = builtins.enable(ENABLED).config
    read_events = (read("opencode", event) for event in events())
    return [{**event.document, **builtins.look(config, event), "builtin_config": config} for event in read_events]


def digest() -> str:
    """Give what stands for the events."""
    return hashlib.sha256(json.dumps(list(events())).encode()).hexdigest()


def _event(tool: str, **args: Any) -> dict[str, Any]:
    return {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": PROJECT, "tool": tool, "args": args}


def _query() -> str:
    counts = ", ".join(
        f'"{name}": count(data.cupcake.{"global." if name in WHOLE else ""}policies.builtins.{name}.{verb}) > 0'
        for name, verb in BUILTINS.items()
    )
    return f"[verdict | some event in input; verdict := {{{counts}}} with input as event]"


def _sources(folder: Path) -> dict[str, dict[str, str]]:
    origins = json.loads((folder / "origin.json").read_text())
    found = {}
    for name, origin in sorted(origins.items()):
        content = (folder / name).read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        found[name] = {"origin": origin, "blob": blob}
    return found


def main(folder: str, opa: str) -> None:
    """Ask the original about every event, and write down what it says."""
    version = subprocess.run([opa, "version"], capture_output=True, check=True, text=True).stdout.splitlines()[0]
    policies = [word for name in _sources(Path(folder)) for word in ("--data", str(Path(folder) / name))]
    done = subprocess.run(
        [opa, "eval", *policies, "--stdin-input", "--format", "json", "--import", "rego.v1", _query()],
        input=json.dumps(documents()).encode(),
        capture_output=True,
        check=True,
    )
    verdicts = json.loads(done.stdout)["result"][0]["expressions"][0]["value"]
    kept = {name: "".join(str(int(verdict[name])) for verdict in verdicts) for name in BUILTINS}
    made = {"events": digest(), "opa": version, "sources": _sources(Path(folder)), **kept}
    VERDICTS.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
