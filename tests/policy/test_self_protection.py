"""The rule that is always on: policies and our own files are not changed by those whom they bind."""

import json
import os
import stat
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyplug
import plugin_folders
import processes
from anyplug.frontends.cli.commands import ALIASES, COMMANDS
from anyplug.frontends.cli.policy import ACTIONS
from anyplug.policy import self_protection
from anyplug.policy.agent_events import read
from anyplug.policy.engine import Engine
from policy_projects import answer, ask, bash, decision, event, policy, project, verdict
from random_examples import at_most
from rows import each_row

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _project():
    project(evaluate=None)
    os.symlink(".cupcake/rulebook.yml", "rules.yml")
    plugin_folders.write(".opencode/plugin/anyplug-policy.js", "")
    plugin_folders.write(".claude/settings.json", '{"hooks": {}}')
    plugin_folders.write(".cupcake/notes/a.rego", "# npm")
    os.mkdir("build")


CHANGES = [
    "rm -rf .cupcake",
    "rm -rf ./.cupcake/policies",
    "rm -rf .",
    "rm -rf $PWD/../work",
    "rm -rf .cup*",
    "rm -rf .[c]upcake",
    "echo x > .cupcake/rulebook.yml",
    "echo x >> '.cup'cake/rulebook.yml",
    "cat a | tee .cupcake/x",
    "sed -i s/deny/allow/ .cupcake/policies/opencode/p.rego",
    "cd .cupcake && rm x",
    "mv .cupcake away",
    "find .cupcake -delete",
    "find .cupcake -exec rm {} +",
    "python -c \"open('.cupcake/x', 'w')\"",
    "bash -c 'rm -r .cupcake'",
    "ls $(rm -r .cupcake)",
    'echo "$(rm -r .cupcake)"',
    "git checkout HEAD~1 -- .cupcake",
    "ln -s /tmp/x .cupcake/y",
    "chmod -R 777 .cupcake",
    "RM -RF .CUPCAKE",
    "eval 'rm -r .cupcake'",
    "anyplug policy init .cupcake",
    "rm .opencode/plugin/anyplug-policy.js",
    "cd .opencode/plugin && echo > anyplug-policy.js",
    "sed --in-place=.old 1d .cupcake/rulebook.yml",
    "sed -Ei 1d .cupcake/rulebook.yml",
    "sed -n 'w .cupcake/rulebook.yml' x",
    "sort --output=.cupcake/rulebook.yml x",
    "sort --outp .cupcake/rulebook.yml x",
    "sort -ro.cupcake/rulebook.yml x",
    "uniq x .cupcake/rulebook.yml",
    "tree -o .cupcake/rulebook.yml",
    "find . -fprint0 .cupcake/rulebook.yml",
    "find . -fls .cupcake/rulebook.yml",
    "git diff --output=.cupcake/rulebook.yml",
    "git grep -O./x deny .cupcake",
    "awk 'BEGIN { print | \"tee .cupcake/rulebook.yml\" }'",
    "awk -i inplace 1 .cupcake/rulebook.yml",
    "rg --pre ./x deny .cupcake",
    "less -o .cupcake/rulebook.yml x",
    "rm " + ".[c" * 10_000,
    "find . -delete",
    "find -delete",
    "find . -name '*.rego' -delete",
    "find . -iname 'EVAL*' -delete",
    "find . ! -name '*.py' -delete",
    "find . -name '*.py' -o -delete",
    "find . -type f -exec rm {} +",
    "find . -type f -execdir sh -c 'rm $0' {} +",
    "find . -type f | xargs rm",
    "ls -A | xargs rm -rf",
    "rm -rf ../*",
    "rm -rf ../wor?",
    "shopt -s dotglob; rm -rf *",
    "cd .. && rm -rf work",
    "rm -rf .cup{cake,}",
    "D=.cup; rm -rf ${D}cake",
    "D=.cup && E=cake && rm -rf $D$E",
    "export D=.cup; rm -rf ${D}cake",
    "rm -rf ${D}cake",
    "rm -rf ${D:-.cup}cake",
    "T=$PWD; rm -rf $T",
    "git clean -fdx",
    "git clean -f -d -x",
    "X=1 git clean -fdx",
    "sudo git clean -fdx .claude",
    "if true; then git restore .claude; fi",
    "while true; do find .claude -delete; done",
    "env find . -delete",
    "git -C . clean -fdx",
    "git stash -u",
    "git stash --include-untracked",
    "git stash push --all",
    "git checkout -- .",
    "git restore .",
    "rm -rf .opencode",
    "anyplug stop",
    "anyplug approve x",
    "anyplug policy init",
    "anyplug policy trust --yes",
    "anyplug --home list approve x",
    "anyplug jobs 1 --cancel",
    "/usr/local/bin/anyplug stop",
    "python -m anyplug stop",
    "python3.11 -m anyplug.__main__ policy trust",
    "python -c 'from anyplug.policy import accepted_copies'",
    "env X=1 anyplug stop",
    "X=1 anyplug stop",
    "sudo -u ada anyplug grant x network",
    "echo stop | xargs anyplug",
    "sh -c 'anyplug stop'",
    'bash -lc "anyplug policy trust"',
    "true && (anyplug stop)",
    "uvx anyplug stop",
    "timeout 5 anyplug stop",
    "busybox anyplug stop",
    "$(which anyplug) stop; anyplug stop",
    "cupcake init",
    r"echo $'it\'s'; anyplug policy trust --yes",
    r"echo $'it\'s'; rm -rf .cupcake",
    "$'anyplug' policy trust --yes",
    r"$'any\x70lug' policy trust --yes",
    r"rm -rf $'\x2ecupcake'",
    r"rm -rf $'\056cupcake'",
    r"rm -rf $'.cup\u0063ake'",
    r"rm -rf $'.cupcake\0x'",
    'rm -rf $".cupcake"',
    'echo "unclosed\nrm -rf .cupcake',
    "echo 'unclosed\nanyplug stop",
    'echo "${x#\'"\'}"; rm -rf .cupcake; echo "${x#\'"\'}"',
    "echo ${x:- # }; rm -rf .cupcake",
    "cat <<E\nit's\nE\nrm -rf .cupcake\ncat <<E\nit's\nE",
    "cat <<E\nit's $(rm -rf .cupcake)\nE",
    "echo x # it's\nrm -rf .cupcake # '",
    "echo $(case x in x) anyplug stop;; esac)",
    "tee >(anyplug policy trust --yes)",
    "echo " + "$(" * 5 + "rm -rf .cupcake" + ")" * 5,
    "echo " + "$(echo " * 200 + "$(anyplug policy trust --yes)" + ")" * 200,
    "eval " * 2_000 + "anyplug stop",
    "any\\\nplug policy trust --yes",
    "rm -rf .cup\\\ncake",
    'rm -rf ".cup\\\ncake"',
    "$(which anyplug) policy trust --yes",
    "`which anyplug` policy trust --yes",
    "$(command -v anyplug) approve x",
    "python3 $(which anyplug) policy trust --yes",
    "/usr/local/bin/any* policy trust --yes",
    "{anyplug,policy,trust,--yes}",
    "rm -rf {.cup,x}cake",
    "rm -rf .cupcak{e..e}",
    "alias a=anyplug; a policy trust --yes",
    "alias a=anyplug\na stop",
    "X=anyplug\n$X policy trust --yes",
    "X='anyplug policy trust'\n$X --yes",
    "printf -v x any%s plug; $x policy trust --yes",
    "read x <<< anyplug; $x stop",
    "hash -p /usr/bin/anyplug foo; foo policy trust --yes",
    "ln -s $(which anyplug) foo; ./foo stop",
    "cp $(which anyplug) foo && ./foo policy trust --yes",
    "script -qc 'anyplug policy trust --yes' /dev/null",
    "echo y | script -c 'anyplug policy trust' /dev/null",
    r"expect -c 'spawn anyplug policy trust; send y\r'",
    "socat - EXEC:'anyplug policy trust',pty",
    "git -c alias.x='!anyplug policy trust --yes' x",
    "git config alias.x '!anyplug policy trust --yes'",
    "GIT_EDITOR='anyplug policy trust --yes' git commit",
    "export GIT_EDITOR='anyplug policy trust --yes'; git commit",
    "git -c core.pager='anyplug stop' log",
    "awk 'BEGIN{system(\"anyplug policy trust --yes\")}'",
    'perl -e \'system("anyplug", "policy", "trust")\'',
    'node -e \'require("child_process").execSync("anyplug stop")\'',
    "ruby -e 'system \"anyplug approve x\"'",
    "php -r 'system(\"anyplug grant x network\");'",
    "at now <<< 'anyplug policy trust --yes'",
    "crontab <<< '* * * * * anyplug policy trust --yes'",
    "echo 'anyplug policy trust --yes' | sh",
    "tmux send-keys 'anyplug policy trust --yes' Enter",
    "ssh localhost anyplug stop",
    "watch anyplug stop",
    "parallel ::: 'anyplug stop'",
    "echo x | xargs sh -c 'anyplug stop'",
    "make -f - <<< 'all: ; anyplug policy trust --yes'",
    "env -S 'anyplug stop'",
    "busybox sh -c 'anyplug stop'",
    "nsenter -t 1 anyplug stop",
    "trap 'anyplug stop' EXIT",
    "git stash push .cupcake",
    "git stash push -m x -- .cupcake",
    'rm -rf "$(pwd)"',
    "rm -rf `pwd`",
    "echo cake | xargs -I{} rm -rf .cup{}",
    "grep -rl npm . | xargs sed -i s/npm/x/",
    "fd -H rego -x rm",
    "sed -i s/anyplug/true/ .claude/settings.json",
    "echo '{}' > .claude/settings.local.json",
    "cd .claude && rm settings.json",
    "rm -rf .claude",
    "rm -rf .cl*",
    "rm ~/.claude/settings.json",
    "rm .codex/hooks.json",
    "sed -i s/hooks/none/ ~/.codex/config.toml",
    "anyplug audit prune --before 1d --yes",
    "anyplug audit --reseal",
    "echo > .opencode/plugin/zzz.js",
    "echo '{}' > opencode.json",
    "rm ~/.config/opencode/opencode.jsonc",
    "pip uninstall -y anyplug",
    "python -m pip uninstall anyplug",
    "uv tool uninstall anyplug",
    "pkill anyplug",
    "pkill -f any",
    "pkill -9 -f 'any.*g'",
    "pkill any",
    "pkill -f .",
    "pkill -f python",
    "pkill -u root",
    "killall -u root",
    "killall -r 'any.*'",
    "killall5",
    "kill -9 -1",
    "kill -- -1",
    "kill -s KILL -1",
    "sudo kill -KILL -1",
    "pgrep -f anyp | xargs kill",
    "kill $(pgrep -f plug)",
    "ps aux | grep any | awk '{print $2}' | xargs kill",
    "zip -rm a.zip .",
    "zip -r a.zip . --move",
    "7z a a.7z . -sdel",
    "gzip -r .claude",
    "git ls-files -o | xargs rm",
    "git ls-files --others | xargs sed -i 1d",
    "git grep -l hooks | xargs sed -i s/hooks/x/",
    "git checkout .claude",
    "git restore -- .claude",
    "git stash -u -- .claude",
    "git sparse-checkout set src",
    "sed '1e rm .cl*/settings.json' x",
    "sed -e '1e rm -r .cup*' x",
    "vim -es -c 'e .cup*/rulebook.yml' -c '%d' -c wq",
    "xargs rm -r <<E\n.cupcake\nE",
    "python3 - <<'E'\nimport shutil\nshutil.rmtree('.cupcake')\nE",
    "alias x='rm -r'; x .cupcake",
    "alias x='rm -r .cupcake'; x",
    "kill $(pgrep -f anyplug)",
    "rm /opt/x/.venv/bin/anyplug",
    "echo > /opt/x/bin/anyplug",
    "rm -rf /opt/x/lib/python3.11/site-packages/anyplug",
    "rm -rf $(ls -A | grep cup)",
    "sed -i s/npm/x/ $(grep -rl npm .)",
    "grep -rl npm --include='*.rego' . | while read f; do sed -i s/npm/x/ \"$f\"; done",
]
READS = [
    "cat .cupcake/rulebook.yml",
    "ls -la .cupcake | head -3",
    "grep -r deny .cupcake",
    "git diff .cupcake",
    "git add .cupcake && git commit -m 'new .cupcake rules'",
    "cat .cupcake/rulebook.yml > copy.yml",
    "anyplug policy test --policy-dir .cupcake",
    "rm -rf build",
    "ls",
    "echo done",
    "sed -n 1,5p .cupcake/rulebook.yml",
    "sed -i 1d README.md",
    "find .cupcake -name a -o -name b",
    "git diff -- .cupcake",
    "find . -name '*.pyc' -delete",
    "find build -delete",
    "find . -type f -exec grep -l TODO {} +",
    "find . -name '*.py' | xargs sed -i s/a/b/",
    "find . -type f | xargs wc -l",
    "rm -rf $BUILD",
    "rm -rf *",
    "rm -rf build/*",
    "cd build && rm -rf *",
    "git clean -n",
    "git clean -fdx build",
    "git clean -fdx -e .cupcake -e .claude -e .opencode",
    "git stash",
    "git stash pop",
    "git checkout main",
    "git pull",
    "which anyplug",
    "command -v anyplug",
    "grep -r anyplug README.md",
    "mkdir anyplug",
    "pip install anyplug",
    "anyplug --version",
    "anyplug approve --help",
    "anyplug --home x list",
    "python -m anyplug tools",
    "env anyplug audit",
    "anyplug jobs",
    r"git commit -m $'don\'t touch .cupcake'",
    "git commit -m 'Say what anyplug policy trust does'",
    "echo 'run anyplug policy trust' >> README.md",
    "grep -rn 'anyplug approve' docs | head",
    "anyplug list; npm test",
    "cd anyplug && npm install",
    "npm test -- --grep 'it'",
    "cat .claude/settings.json",
    "cat ~/.claude/settings.json | jq .hooks",
    "cat .codex/hooks.json",
    "anyplug audit summary --since 7d",
    "anyplug audit export --format csv",
    "git diff opencode.json",
    "ls .opencode/plugin",
    "cat <<EOF > notes.md\nit's done\nEOF",
    "echo $((1<<2))",
    "git stash push src",
    "grep -rl npm src | xargs sed -i s/npm/x/",
    'for f in *.py; do echo "$f"; done # it\'s all',
    "docker compose up -d",
    "rm -rf $BUILD && ls",
    "rm -rf $(find . -name '*.pyc')",
    "kill %1",
    "kill -1 1234",
    "kill -- -1234",
    "pkill -P $$",
    "pkill -HUP nginx",
    "pkill -f 'python -m http.server'",
    "pkill -u $USER -f jest",
    "pgrep -f anyplug",
    "ps aux | grep node | awk '{print $2}' | xargs kill",
    "git grep -l TODO | xargs sed -i s/TODO/DONE/",
    "git ls-files -m | xargs git add",
    "sed 's/a/b/g; 2,4d' .cupcake/rulebook.yml",
    "awk 'NR < 3' .cupcake/rulebook.yml",
    "uniq .cupcake/rulebook.yml",
    "zip -r a.zip src",
    "curl -s https://localhost/x | jq '.a[] | {b, c}'",
]


@pytest.mark.claim("agents-cannot-say-it")
@each_row("command", CHANGES)
async def test_a_command_that_changes_policies_is_refused(command):
    made = await answer(bash(command))
    assert made["decision"] == "deny"
    assert "may not change" in made["reason"]


UNPACKING = [
    "tar xf evil.tar",
    "tar -xf evil.tgz -C build",
    "tar x -f evil.tar",
    "tar --extract --file=evil.tar",
    "tar xf evil.tar --strip-components=1",
    "sudo tar xf evil.tar",
    "cat evil.tgz | tar xz",
    "gunzip -c evil.tgz | tar x",
    "unzip -o evil.zip",
    "7z x evil.zip",
    "unzip -o 'ev*.zip'",
    "unzip -o renamed.zip",
    "unzip -o linked.zip",
    "tar xif two.tar",
    "tar xf linked.tar",
    "cd build && tar xf ../evil.tar",
    "tar xf gate.tar",
    "tar xf link.tar",
    "tar xf a.tar .cupcake",
    "unzip a.zip -d .cupcake",
    "tar cf a.tar --remove-files .",
    "patch -p1 < evil.patch",
    "patch -p1 -i evil.patch",
    "cat evil.patch | patch -p1",
    "git apply evil.patch",
    "git am < evil.patch",
    "git apply <<E\ndiff --git a/.cupcake/x b/.cupcake/x\ndeleted file mode 100644\nE",
    "git apply renaming.patch",
    "git apply quoted.patch",
    "git checkout other -- '*.rego'",
    "git checkout other -- '*'",
    "git checkout other -- ':/*.rego'",
    "git checkout other -- ':(glob)**/*.rego'",
    "git checkout --pathspec-from-file=list other",
    "git restore --source=HEAD~1 '*.yml'",
    "git restore ':!src'",
    "git restore -s HEAD~1 ':(exclude)src'",
    "git rm -rf '*'",
    "git rm '*.rego'",
    "git checkout-index -f -a",
]
NOT_UNPACKING = [
    "tar xf fine.tar",
    "tar tf evil.tar",
    "tar xf evil.tar -C /nowhere/else",
    "tar czf out.tgz src",
    "unzip -l evil.zip",
    "unzip -o evil.zip -d /nowhere/else",
    "tar xf missing.tar",
    "tar xf broken.tgz",
    "git apply fine.patch",
    "patch -p1 < fine.patch",
    "git checkout -- '*.py'",
    "git checkout -- 'src/*'",
    "git -C src restore '*.rego'",
    "git reset --hard",
    "git merge other",
    "git stash pop",
]


@pytest.fixture
def _files_of_others():
    """Write archives and patches, some of which touch the policies or the gate."""
    project({"p": policy("opencode.p", decision("deny", when="false"))}, rulebook="signals: {}")
    plugin_folders.write("other/.cupcake/rulebook.yml", "")
    plugin_folders.write("other/.opencode/plugin/anyplug-policy.js", "")
    plugin_folders.write("other/a.py", "")
    os.mkdir("src")
    os.symlink("../.cupcake", "other/link")
    for name, mode, inside in (
        ("evil.tar", "w", ".cupcake"), ("evil.tgz", "w:gz", ".cupcake"), ("gate.tar", "w", ".opencode"),
        ("fine.tar", "w", "a.py"),
    ):  # fmt: skip
        with tarfile.open(name, mode) as archive:
            archive.add(f"other/{inside}", f"./{inside}")
    with tarfile.open("link.tar", "w") as archive:
        member = tarfile.TarInfo("x")
        member.type, member.linkname = tarfile.SYMTYPE, ".cupcake"
        archive.addfile(member)
    with zipfile.ZipFile("evil.zip", "w") as zipped:
        zipped.writestr(".cupcake/rulebook.yml", "")
    plugin_folders.write("./broken.tgz", b"\x1f\x8bno archive")
    with zipfile.ZipFile("renamed.zip", "w") as zipped:
        entry = zipfile.ZipInfo("a.py")
        body = struct.pack("<BL", 1, zlib.crc32(b"a.py")) + b".cupcake/rulebook.yml"
        entry.extra = struct.pack("<HH", 0x7075, len(body)) + body  # the name that `unzip` uses
        zipped.writestr(entry, "")
    with zipfile.ZipFile("linked.zip", "w") as zipped:
        entry = zipfile.ZipInfo("d")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(entry, ".opencode")
        zipped.writestr("d/plugin/anyplug-policy.js", "")
    with tarfile.open("linked.tar", "w") as archive:
        for name, target in (("d", "e"), ("e", ".opencode")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("d/plugin/anyplug-policy.js"))
    with open("two.tar", "wb") as both:
        for name in ("fine.tar", "evil.tar"):
            both.write(processes.read(name))
    header = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-a\n+.cupcake\n"
    plugin_folders.write("./evil.patch", header.format(".cupcake/rulebook.yml"))
    plugin_folders.write("./fine.patch", header.format("a.py"))
    plugin_folders.write("./renaming.patch", "diff --git a/x b/x\nrename from x\nrename to .cupcake/rulebook.yml\n")
    plugin_folders.write("./quoted.patch", header.format("x").replace("b/x", '"b/\\056cupcake/x"'))


@pytest.mark.claim("agents-cannot-say-it")
@pytest.mark.usefixtures("_files_of_others")
@each_row("command", UNPACKING)
async def test_what_puts_other_files_in_the_place_of_policies_is_refused(command):
    made = await answer(bash(command))
    assert made["decision"] == "deny"
    assert "may not change" in made["reason"]


@pytest.mark.usefixtures("_files_of_others")
@each_row("command", NOT_UNPACKING)
async def test_what_leaves_them_alone_or_cannot_be_known_is_not(command):
    assert await verdict(bash(command)) == "allow"


LISTED = [  # by git, which knows .claude and .opencode, and not yet what is new in .cupcake
    "git ls-files | xargs rm",
    "git ls-files -- . ':!.opencode' | xargs rm",
    "git ls-files '**/*.json' | xargs sed -i s/a/b/",
    "git ls-files -o | xargs rm",
    "git add -A && git ls-files .cupcake/notes | xargs rm",
    "git clean -fd",
    "git stash -u",
    "git grep -l hooks | xargs sed -i s/a/b/",
]
NOT_LISTED = [
    "git ls-files ':!.claude' ':!.opencode' ':!.cupcake/policies' | xargs rm",
    "git ls-files -o src | xargs rm",
    "git clean -fd -e .cupcake -e .claude -e .opencode",
    "git clean -fd src",
    "git stash -u -- src",
    "git grep -l hooks -- src | xargs sed -i s/a/b/",
    "git grep -l nothing | xargs sed -i s/a/b/",
]


@pytest.fixture
def _tracked():
    plugin_folders.write("src/a.py", "")
    plugin_folders.write(".cupcake/policies/opencode/a.rego", "package cupcake.policies.opencode.a")
    for words in (["init", "-q"], ["add", "src", ".claude", ".opencode", ".cupcake/policies"]):
        subprocess.run(["git", *words], check=True)


@pytest.mark.claim("agents-cannot-say-it")
@pytest.mark.usefixtures("_tracked")
@each_row(("command", "word"), [*((each, "deny") for each in LISTED), *((each, "allow") for each in NOT_LISTED)])
async def test_what_git_lists_is_compared_with_its_index(command, word):
    assert await verdict(bash(command)) == word


@pytest.fixture
def _all_tracked(_tracked):
    subprocess.run(["git", "add", "-A"], check=True)


@pytest.mark.usefixtures("_all_tracked")
async def test_git_removes_nothing_that_it_tracks():
    for command in ("git clean -fdx", "git stash -u"):
        assert await verdict(bash(command)) == "allow"
    assert await verdict(bash("git rm -rq --cached .claude; git clean -fdx")) == "deny"


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("find . -type f | xargs chmod 644", "-not -path './.cupcake*'"),
        ("grep -rl hooks . | xargs sed -i s/a/b/", "--exclude-dir=.claude"),
        ("git restore .", "git restore . ':!.claude'"),
        ("git clean -fd", "-e .claude"),
        ("chmod -R u+w .", "chmod -R u+w src"),
    ],
)
async def test_a_refusal_says_what_to_leave_out(command, cure):
    reason = (await answer(bash(command)))["reason"]
    assert all(word in reason for word in cure.split())


@pytest.mark.parametrize("key", ["cwd", "workdir"])
async def test_a_command_that_runs_among_the_policies_may_only_read(key):
    where = {key: os.path.abspath(".cupcake")}
    assert await verdict(event("bash", command="rm rulebook.yml", **where)) == "deny"
    assert await verdict(event("bash", command="cat rulebook.yml", **where)) == "allow"


@each_row("command", READS)
async def test_a_command_that_only_reads_them_is_not(command):
    assert await verdict(bash(command)) == "allow"


@each_row(
    ("tool", "arguments"),
    [
        ("write", {"filePath": ".cupcake/rulebook.yml", "content": ""}),
        ("write", {"filePath": "rules.yml", "content": ""}),
        ("edit", {"filePath": "a/../.cupcake/x", "oldString": "", "newString": ""}),
        ("edit", {"filePath": "/somewhere/else/.cupcake/x"}),
        ("apply_patch", {"patchText": "*** Begin Patch\n*** Delete File: .cupcake/rulebook.yml\n*** End Patch"}),
        ("apply_patch", {"patchText": "*** Update File: a\n*** Move to: .cupcake/a\n"}),
        ("filesystem_write_file", {"path": ".cupcake/x"}),
        ("filesystem_move", {"from": {"path": "a"}, "to": [{"path": ".cupcake/x"}]}),
        ("write", {"filePath": ".opencode/plugin/anyplug-policy.js", "content": ""}),
        ("write", {"filePath": "anyplug-policy.js", "content": ""}),
        ("filesystem_write", {"uri": "file:///x/.cupcake/y"}),
        ("filesystem_copy", {"destination": "rules.yml"}),
        ("filesystem_delete", {"target": ".claude"}),
        ("write", {"filePath": ".claude/settings.json", "content": "{}"}),
        ("write", {"filePath": ".claude/settings.local.json", "content": "{}"}),
        ("edit", {"filePath": "~/.claude/settings.json"}),
        ("write", {"filePath": ".opencode/plugin/zzz.js", "content": ""}),
        ("write", {"filePath": "opencode.jsonc", "content": ""}),
        ("write", {"filePath": os.path.join(os.path.dirname(anyplug.__file__), "x.py"), "content": ""}),
        ("apply_patch", {"patchText": "***  Update File:  .cupcake/rulebook.yml\n+x"}),
        ("apply_patch", {"patchText": "*** update file: .cupcake/rulebook.yml\n+x"}),
        ("apply_patch", {"patchText": "   *** Delete File: .cupcake/rulebook.yml"}),
        ("apply_patch", {"patchText": "*** Add File: a\n+x\n\t***MOVE  to: .cupcake/a"}),
        ("apply_patch", {"patchText": "*** Rename File: a\n+x"}),
        ("bash", {"command": ["rm", "-rf", ".cupcake"]}),
        ("bash", {"command": ["bash", "-lc", "rm -rf .cupcake"]}),
        ("bash", {"cmd": "rm -rf .cupcake"}),
        ("shell", {"command": ["anyplug", "policy", "trust"]}),
        ("exec", {"command": "anyplug", "args": ["policy", "trust", "--yes"]}),
        ("exec", {"command": "anyplug", "args": "policy trust --yes"}),
        ("start", {"program": "rm", "args": ["-rf", ".cupcake"]}),
        ("start", {"argv": ["rm", "-rf", ".cupcake"]}),
        ("start", {"steps": [{"run": {"command": {"program": "rm", "args": ["-rf", ".cupcake"]}}}]}),
        ("terminal_execute", {"input": "rm -rf .cupcake\n"}),
        ("terminal_execute", {"keys": ["rm -rf .cupcake"]}),
        ("python", {"code": "import shutil; shutil.rmtree('.cupcake')"}),
        ("notebook", {"cells": [{"source": "open('.cupcake/rulebook.yml', 'w')"}]}),
        ("git_apply", {"diff": "--- a/.cupcake/rulebook.yml\n+++ b/.cupcake/rulebook.yml\n@@ -1 +1 @@\n-a\n+b\n"}),
        ("git_apply", {"what": ["diff --git a/x b/.cupcake/x\nrename to .cupcake/x\n"]}),
        ("write_files", {".cupcake/rulebook.yml": "x"}),
        ("write_files", {"files": {".cupcake/rulebook.yml": {"content": "x"}}}),
        ("write_files", {"a": [[[[[[[[{"b": {"path": ".cupcake/x"}}]]]]]]]]}),
        ("write_files", {"paths": "a\n.cupcake/x\n"}),
        ("filesystem_write_file", {"path": ".cupcake/x\n"}),
        ("batch", {"tool_calls": [{"tool": "write", "parameters": {"filePath": ".cupcake/x", "content": ""}}]}),
        ("batch", {"tool_calls": [{"tool": "bash", "parameters": {"command": "rm -rf .cupcake"}}]}),
        ("batch", {"tool_calls": '[{"tool": "write", "parameters": {"filePath": ".cupcake/x", "content": ""}}]'}),
        ("batch", {"tool_calls": json.dumps('[{"tool": "bash", "parameters": {"command": "rm -rf .cupcake"}}]')}),
        ("use_tool", {"tool_name": "bash", "arguments": '{"command": "rm -rf .cupcake"}'}),
    ],
)
@pytest.mark.claim("agents-cannot-say-it")
async def test_a_tool_that_writes_there_is_refused(tool, arguments):
    assert await verdict(event(tool, **arguments)) == "deny"


async def test_our_own_store_is_protected_and_what_plugins_write_is_not(home):
    assert await verdict(event("write", filePath=str(home / "settings.toml"))) == "deny"
    assert await verdict(event("write", filePath=str(home / "anyplug.db"))) == "deny"
    assert await verdict(event("write", filePath=str(home / "files" / "x" / "y.png"))) == "allow"
    assert await verdict(bash(f"rm -rf {home}")) == "deny"
    assert await verdict(bash(f"cat {home}/settings.toml")) == "allow"


async def test_a_link_into_the_policies_is_followed():
    os.symlink(".cupcake", "innocent")
    assert await verdict(event("write", filePath="innocent/rulebook.yml")) == "deny"
    assert await verdict(bash("rm innocent/rulebook.yml")) == "deny"


@pytest.mark.parametrize(("tool", "key"), [("read", "filePath"), ("grep", "path"), ("glob", "path"), ("list", "path")])
async def test_tools_that_read_may_look(tool, key):
    assert await verdict(event(tool, **{key: ".cupcake/rulebook.yml"})) == "allow"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("batch", {"tool_calls": [{"tool": "read", "parameters": {"filePath": ".cupcake/rulebook.yml"}}]}),
        ("batch", {"tool_calls": [{"tool": "bash", "parameters": {"command": "npm test"}}]}),
        ("github_create_issue", {"title": "Policies", "body": "see .cupcake/rulebook.yml\nand docs"}),
        ("terminal_execute", {"input": "npm test\n"}),
        ("python", {"code": "print(1)"}),
        ("git_apply", {"diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}),
        ("memory_add", {"items": [{"name": "x", "input": {"a": 1}}]}),
    ],
)
async def test_a_tool_that_leaves_them_alone_is_not_refused(tool, arguments):
    assert await verdict(event(tool, **arguments)) == "allow"


async def test_the_strictest_verdict_about_the_parts_of_a_call_counts():
    project({"p": policy("p", decision("deny", when='contains(input.tool_input.command, "npm publish")'))})
    calls = [{"tool": "bash", "parameters": {"command": command}} for command in ("ls", "npm publish", "ls")]
    assert await verdict(event("batch", tool_calls=calls)) == "deny"
    assert await verdict(event("batch", tool_calls=calls[:1])) == "allow"


async def test_a_part_of_a_call_that_a_policy_would_change_is_refused():
    rule = """modify contains {"rule_id": "M", "reason": "quiet", "severity": "LOW", "priority": 5,
	"updated_input": {"command": "ls -q"}} if input.tool_name == "Bash"
"""
    project({"p": policy("p", rule)})
    given = await answer(event("batch", tool_calls=[{"tool": "bash", "parameters": {"command": "ls"}}]))
    assert given["decision"] == "deny"
    assert "call Bash alone" in given["reason"]


async def test_a_text_that_is_written_elsewhere_may_speak_of_it():
    assert await verdict(event("write", filePath="README.md", content="see .cupcake/rulebook.yml")) == "allow"


@pytest.mark.parametrize("key", ["command", "cmd", "script"])
async def test_another_tool_that_runs_commands_is_read_as_a_shell(key):
    assert await verdict(event("terminal_run", **{key: "rm -rf .cupcake"})) == "deny"
    assert await verdict(event("terminal_run", **{key: "anyplug policy trust --yes"})) == "deny"
    assert await verdict(event("terminal_run", **{key: "npm test"})) == "allow"


def test_every_command_of_ours_is_known_as_one_that_reads_or_changes():
    assert {*COMMANDS, *ALIASES} == self_protection.READING_OURS | self_protection.CHANGING_OURS
    assert set(ACTIONS) - self_protection.READING_POLICY == {"init", "trust"}


async def test_the_users_own_rule_reason_and_verb_are_kept():
    rule = decision("block", "ask Ada first", rule="MINE", when='contains(input.tool_input.command, ".cupcake")')
    project({"p": policy("opencode.p", rule)})
    made = await ask(bash("rm -rf .cupcake"))
    assert made["decision"] == {"decision": "block", "reason": "ask Ada first"}
    assert [(one["rule_id"], one["verb"]) for one in made["rules"]] == [("MINE", "block")]


async def test_an_ask_of_the_users_does_not_weaken_it():
    project({"p": policy("opencode.p", decision("ask"))})
    assert await verdict(bash("rm -rf .cupcake")) == "deny"


async def test_the_person_can_switch_it_off(home):
    made = Engine(str(home), self_protection=False)
    assert await verdict(bash("rm -rf .cupcake"), engine=made) == "allow"


@pytest.mark.claim("agents-cannot-say-it")
async def test_our_own_program_is_not_removed_nor_overwritten():
    package = os.path.dirname(anyplug.__file__)
    program = os.path.join(os.path.dirname(sys.executable), "anyplug")
    folder = os.path.dirname(os.path.dirname(program))
    for command in (
        f"rm -rf {package}", f"echo > {package}/__init__.py", f"cp x {package}/host.py", f"rm -rf {package}/../*",
        f"rm {program}", f"echo > {program}", f"cd {folder} && rm -rf bin", f"sed -i 1d {program}",
    ):  # fmt: skip
        assert await verdict(bash(command)) == "deny", command
    for command in (f"cat {program}", f"ls {package}", f"{program} list && npm test", f"mypy {package}"):
        assert await verdict(bash(command)) == "allow", command


@pytest.mark.claim("agents-cannot-say-it")
@pytest.mark.parametrize("where", ["beside the project", "around the work folder"])
async def test_our_environment_is_shared_only_if_the_project_holds_it(where, tmp_path, monkeypatch):
    environment = os.path.join(os.path.dirname(os.getcwd()) if where == "beside the project" else tmp_path, "venv")
    inside = os.path.join(environment, "lib")
    os.makedirs(inside)
    monkeypatch.setattr(sys, "prefix", environment)
    for command in (
        "echo x > PLACE/lib/sitecustomize.py",
        "PLACE/bin/pip install evil",
        "python3 -m venv --clear PLACE",
    ):
        for more in ({}, {"workdir": environment}, {"workdir": inside}, {"workdir": os.path.dirname(environment)}):
            given = event("bash", command=command.replace("PLACE", environment), **more)
            assert await verdict(given) == "deny", (command, more)
    for folder in (environment, os.path.dirname(environment)):
        given = bash(f"echo x > {inside}/sitecustomize.py") | {"cwd": folder}
        assert await verdict(given) == "deny", folder
    assert await verdict(event("bash", command="echo x > lib/sitecustomize.py", workdir=environment)) == "deny"
    assert await verdict(event("write", filePath=f"{inside}/sitecustomize.py", content="x")) == "deny"
    assert await verdict(event("read", filePath=f"{inside}/x.py")) == "allow"


@pytest.mark.claim("agents-cannot-say-it")
async def test_a_repository_that_an_agent_makes_around_our_environment_does_not_share_it(tmp_path, monkeypatch):
    environment = str(tmp_path / "tools" / "venv")
    os.makedirs(environment)
    plugin_folders.write(f"{environment}/pyvenv.cfg", "")
    monkeypatch.setattr(sys, "prefix", environment)
    await wait_for_another_tick(environment)
    plugin_folders.write(str(tmp_path / "tools/.git/description"), "")
    os.utime(tmp_path / "tools/.git/description", (1, 1))
    project(folder=str(tmp_path / "tools"), evaluate=None, trust=False)
    given = bash(f"{environment}/bin/pip install evil") | {"cwd": str(tmp_path / "tools")}
    assert await verdict(given) == "deny"
    assert await verdict(bash(f"echo x > {environment}/lib/sitecustomize.py") | {"cwd": environment}) == "deny"


async def wait_for_another_tick(place):
    """Wait until a new file is younger than an old one, by the file system's clock."""
    before = os.stat(f"{place}/pyvenv.cfg").st_ctime_ns
    while True:
        plugin_folders.write(f"{os.path.dirname(place)}/tick", "")
        if os.stat(f"{os.path.dirname(place)}/tick").st_ctime_ns > before:
            return
        await anyio.sleep(0.001)


@pytest.mark.parametrize("root", [".", "nested"])
async def test_an_environment_inside_of_the_project_is_the_projects(root, monkeypatch):
    os.makedirs("nested/.git")
    os.makedirs(f"{root}/src")
    environment = os.path.abspath(f"{root}/.venv")
    os.makedirs(environment)
    monkeypatch.setattr(sys, "prefix", environment)
    for cwd in (root, f"{root}/src"):
        given = bash(f"{environment}/bin/pip install requests") | {"cwd": os.path.abspath(cwd)}
        assert await verdict(given) == "allow", cwd


@pytest.mark.parametrize("tool", ["terminal_execute", "shell", "desktop_run"])
@pytest.mark.parametrize(
    "key",
    [
        *("workdir", "cwd", "working_directory", "working_dir", "directory", "dir", "workingDirectory", "folder"),
        *("path", "workingDir"),
    ],
)
async def test_the_folder_of_every_tool_that_runs_commands_is_read(tool, key):
    where = {key: os.path.abspath(".claude")}
    given = event() | {"tool": tool, "args": {"command": "rm settings.json", **where}}
    assert await verdict(given) == "deny"
    assert await verdict(given | {"args": {"command": "npm test", key: os.path.abspath("build")}}) == "allow"


async def test_globs_in_the_middle_of_a_path_are_seen(home):
    above = os.path.dirname(home)
    assert await verdict(bash(f"rm -rf {above}/*/accepted")) == "deny"
    assert await verdict(bash(f"rm -rf {above}/*/anyplug.db")) == "deny"
    os.mkdir("folder")
    os.symlink("../.cupcake", "folder/link")
    assert await verdict(bash("tee f*/l*/rulebook.yml")) == "deny"


async def test_a_command_that_is_too_long_to_read_may_not_mention_what_is_protected():
    padding = "x" * 140_000
    assert await verdict(event("terminal_run", cmd=f"echo {padding}; rm -rf .cupcake")) == "deny"
    assert await verdict(event("terminal_run", cmd=f"echo {padding}")) == "allow"


QUOTED = st.lists(st.sampled_from(["'", '"', "\\", ""]), min_size=8, max_size=8)


@settings(max_examples=at_most(100), deadline=None)
@given(QUOTED, st.sampled_from(["rm -r ", "echo x >", "tee ", "true; rm ", "a && mv x "]))
def test_no_quoting_hides_the_folder(quotes, before):
    name = ".cupcake"
    hidden = "".join(
        f"\\{char}" if quote == "\\" else f"{quote}{char}{quote}" for quote, char in zip(quotes, name, strict=True)
    )
    made = read("opencode", bash(f"{before}{hidden}/x", cwd="/w"))
    assert self_protection.finding(made, ["/w/.cupcake"]) is not None
