"""What programs are told to run: each row is a command that hides another one, which is read as a command, too."""

import pytest

from anyplug.policy.shell import command_steps
from rows import each_row

RUN = "rm -r vault"  # stands for what a row hides


def told(command: str, folder: str = "/nowhere") -> list[str]:
    """Return the texts that the programs of a line are told to run."""
    return [text for text, _ in command_steps.told(command_steps.read(command, [folder]))]


TOLD = [
    # shells and what feeds them
    f"echo '{RUN}' | sh",
    f"printf '%s\n' '{RUN}' | bash",
    f"printf '{RUN}' | sudo bash",
    f"cat <<< '{RUN}' | sh",
    f"cat <<E | sh\n{RUN}\nE",
    f"bash <<'E'\n{RUN}\nE",
    f"sh -s <<E\n{RUN}\nE",
    f"bash <<< '{RUN}'",
    f"echo '{RUN}' > x.sh; sh x.sh",
    f"echo '{RUN}' > x.sh && chmod +x x.sh && ./x.sh",
    f". <(echo '{RUN}')",
    f"source /dev/stdin <<< '{RUN}'",
    f"eval '{RUN}'",
    "echo 'tluav r- mr' | rev | sh",
    "echo cm0gLXIgdmF1bHQ= | base64 -d | sh",
    "echo 726d202d72207661756c74 | xxd -r -p | sh",
    f"alias x='{RUN}'; x",
    f"alias x='{RUN}'",
    "alias x='rm -r'; x vault",
    "alias x='rm -r ' y=vault\nx y",
    f"echo '{RUN}' > x.sh; BASH_ENV=x.sh bash -c :",
    f"echo '{RUN}' > x.sh; export ENV=x.sh; sh -i",
    f"su -c '{RUN}'",
    f"su ada -c '{RUN}'",
    f"mapfile -C '{RUN}' -c 1 a",
    f"a='x[$({RUN})]'; read \"$a\" <<< 1",
    # git
    f"git rebase -x '{RUN}' HEAD~1",
    f"git rebase --exec '{RUN}' HEAD~1",
    f"git rebase --exec='{RUN}' HEAD~1",
    f"git -c core.pager='{RUN}' log",
    f"git -ccore.editor='{RUN}' commit",
    f"git -c credential.helper='!{RUN}' fetch",
    f"git -c core.sshCommand='{RUN}' fetch",
    f"git -c core.fsmonitor='{RUN}' status",
    f"git -c diff.external='{RUN}' diff",
    f"git -c filter.x.clean='{RUN}' add .",
    f"git -c alias.x='!{RUN}' x",
    f"git config alias.x '!{RUN}'",
    f"git config --global core.pager '{RUN}'",
    f"git config set core.editor '{RUN}'",
    f"git grep -O'{RUN}' x",
    f"git grep --open-files-in-pager='{RUN}' x",
    f"git difftool -x '{RUN}'",
    f"git difftool --extcmd='{RUN}'",
    f"git submodule foreach '{RUN}'",
    "git submodule foreach rm -r vault",
    f"git submodule foreach --recursive '{RUN}'",
    f"git bisect run {RUN}",
    f"git fetch --upload-pack='{RUN}' x",
    f"git clone -u '{RUN}' x",
    f"git filter-branch --tree-filter '{RUN}'",
    "git clone 'ext::rm% -r% vault'",
    f"GIT_PAGER='{RUN}' git log",
    f"PAGER='{RUN}' man ls",
    f"env EDITOR='{RUN}' crontab -e",
    f"VISUAL='{RUN}' sudoedit x",
    f"GIT_SSH_COMMAND='{RUN}' git fetch",
    f"GIT_EXTERNAL_DIFF='{RUN}' git diff",
    f"LESSOPEN='{RUN}' less x",
    f"PROMPT_COMMAND='{RUN}' bash -i",
    f"GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0='{RUN}' git log",
    # archives and copies
    f"tar -I '{RUN}' -cf a.tar b",
    f"tar --use-compress-program='{RUN}' -cf a.tar b",
    f"tar -cf a.tar b --checkpoint=1 --checkpoint-action='exec={RUN}'",
    f"tar -xf a.tar --to-command='{RUN}'",
    f"tar -cf a.tar -F '{RUN}' b",
    f"rsync -e '{RUN}' a b:",
    f"rsync --rsh='{RUN}' a b:",
    f"split --filter='{RUN}' x",
    f"sort --compress-program='{RUN}' x",
    # packages
    f"npm exec -c '{RUN}'",
    f"npm x -c '{RUN}'",
    f"npm exec --package=x -yc '{RUN}'",
    f"npx -c '{RUN}'",
    f"npx --call='{RUN}'",
    f"pnpm dlx -c '{RUN}'",
    f"yarn exec '{RUN}'",
    f"concurrently 'ls' '{RUN}'",
    f"npx -y concurrently '{RUN}'",
    "IFS=,; c=rm,-r,vault; $c",
    "rm${IFS}-r${IFS}vault",
    # containers
    "docker run --rm -it alpine rm -r vault",
    "docker run -v $PWD:/w -w /w --entrypoint rm alpine -r vault",
    f"podman run --name=x -e A=b alpine sh -c '{RUN}'",
    # editors and their like
    f"vim -c '!{RUN}' x",
    f"vim -c ':!{RUN}' x",
    f"vim '+!{RUN}' x",
    f"vim --cmd '!{RUN}'",
    f"vim -es -c 'r !{RUN}' -c q",
    f"vim -c 'call system(\"{RUN}\")' x",
    f"ed x <<E\n!{RUN}\nE",
    f"sqlite3 x '.shell {RUN}'",
    f"sqlite3 x '.system {RUN}'",
    f"sqlite3 x <<E\n.shell {RUN}\nE",
    f"psql -c '\\! {RUN}'",
    f"gdb -batch -ex 'shell {RUN}'",
    f"gdb -batch -ex '!{RUN}'",
    f"lftp -c '!{RUN}'",
    # languages
    f"sed '1e {RUN}' x",
    f"sed -n '/a/e {RUN}' x",
    f"sed -e p -e 'e {RUN}' x",
    f"sed 's/.*/{RUN}/e' x",
    f"sed 's|.*|{RUN}|ge' x",
    f"awk 'BEGIN{{system(\"{RUN}\")}}'",
    f"gawk '{{print | \"{RUN}\"}}' x",
    f"mawk 'BEGIN{{\"{RUN}\" | getline x}}'",
    f"gawk 'BEGIN{{print |& \"{RUN}\"}}'",
    f"make -f- <<< 'a:;{RUN}'",
    f"make -f - <<E\na:\n\t{RUN}\nE",
    f"make --eval='a:;{RUN}'",
    f"make 'SHELL=sh' 'X=$(shell {RUN})'",
    f"python3 -c 'import os;os.system(\"{RUN}\")'",
    'python3 -c \'import subprocess;subprocess.run(["rm", "-r", "vault"])\'',
    f"python3.11 - <<'E'\nimport os\nos.system('{RUN}')\nE",
    f"python3 <<E\nimport os\nos.system('{RUN}')\nE",
    f"cat <<'E' | python3\nimport os\nos.system('{RUN}')\nE",
    f"perl -e 'system \"{RUN}\"'",
    f"perl -e 'system qw( {RUN} )'",
    f"perl -e 'print `{RUN}`'",
    f"perl -e 'exec q({RUN})'",
    f'node -e \'require("child_process").execSync("{RUN}")\'',
    f"node <<E\nrequire('child_process').execSync('{RUN}')\nE",
    f"ruby -e 'system \"{RUN}\"'",
    f"ruby -e '%x({RUN})'",
    f"php -r 'system(\"{RUN}\");'",
    f"lua -e 'os.execute(\"{RUN}\")'",
    f"deno eval 'x(\"{RUN}\")'",
    'python3 -c \'import os;os.system("rm -r va" + "ult")\'',
    'python3 -c \'import subprocess;subprocess.run(["rm", "-r", "va" + "ult"])\'',
    'perl -e \'system "rm -r va" . "ult"\'',
    'lua -e \'os.execute("rm -r va".."ult")\'',
    "python3 -c 'import os;os.system(\"rm -r v\\x61ult\")'",
    'node -e \'x(Buffer.from("cm0gLXIgdmF1bHQ=", "base64"))\'',
    f"sudo python3 -c 'import os;os.system(\"{RUN}\")'",
    f"env X=1 timeout 5 perl -e 'system \"{RUN}\"'",
    f"find . -exec perl -e 'system \"{RUN}\"' ;",
    f"if true; then sed '1e {RUN}' x; fi",
    # texts in texts
    f"sh -c \"git rebase -x '{RUN}' HEAD~1\"",
    f'echo "awk \'BEGIN{{system(\\"{RUN}\\")}}\'" | sh',
]


@pytest.mark.claim("no-weaker-than-cupcake")
@each_row("command", TOLD)
def test_what_a_program_is_told_to_run_is_read_as_a_command(command):
    run = {tuple(step.words) for text in told(command) for step in command_steps.read(text, ["/nowhere"]).steps}
    run |= {tuple(step.words) for step in command_steps.read(command, ["/nowhere"]).steps}  # `sh -c` is read there
    assert tuple(RUN.split()) in run


READ = {  # files that a text in another language reads, or writes
    "sed '1r vault/x' x": "sed p vault/x",
    "sed 'R vault/x' x": "sed p vault/x",
    "sed -n 'w vault/x' x": "sed p x > vault/x",
    "sed 's/a/b/w vault/x' x": "sed p x > vault/x",
    "awk 'BEGIN{while((getline l < \"vault/x\")>0) print l}'": "awk 1 vault/x",
    "awk 'BEGIN{ARGV[1]=\".vault\";ARGC=2} 1'": "awk 1 .vault",
    "awk '{print > \"vault/x\"}' x": "awk 1 > vault/x",
    "awk '{print >> \"vault/x\"}' x": "awk 1 > vault/x",
    "python3 -c 'print(open(\".vault\").read())'": "python3 .vault",
    "python3 - <<E\nprint(open('.vault').read())\nE": "python3 .vault",
    'node -e \'require("fs").readFileSync(".vault")\'': "node .vault",
    "perl -e 'open F, \"vault/x\"'": "perl vault/x",
    "ruby -e 'puts File.read(\".vault\")'": "ruby .vault",
    "php -r 'readfile(\".vault\");'": "php .vault",
    "vim -c 'e .vault' x": "vim .vault",
    "vim -es -c 'r vault/x' -c wq": "vim vault/x",
    "ed x <<E\nr vault/x\nE": "ed vault/x",
    "vim -c 'e .va*' x": "vim .va*",
    "git-commit -n": "git commit -n",
    "/usr/lib/git-core/git-commit --no-verify": "git commit --no-verify",
    "git -c alias.ci='commit --no-verify' ci": "git commit --no-verify",
    "git config alias.ci 'commit -n'": "git commit -n",
    "git config --file x alias.ci 'commit -n'": "git commit -n",
    "git config alias.a 'b c'; git config alias.b '!npm'; git a publish": "npm c publish",
    "git -c alias.x='!npm' x publish": "npm publish",
    "git config alias.x '!f() { npm $1; }; f'; git x publish": "f() { npm $1; }; f publish",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='!npm' git x publish": "npm publish",
    "GIT_CONFIG_PARAMETERS=\"'alias.x=!npm'\" git x publish": "npm publish",
    "X='!npm' git --config-env=alias.x=X x publish": "npm publish",
    "alias g=git; g commit -n": "git commit -n",
    "python3 -m twine upload dist/x": "twine upload dist/x",
    "python3 -mtwine upload dist/x": "twine upload dist/x",
}


@each_row(("command", "text"), READ.items())
def test_the_files_and_commands_in_other_languages_are_named_as_a_shell_would(command, text):
    assert text in [" ".join(one.replace("'", "").split()) for one in told(command)]


HONEST = [
    "ls -la",
    "npm test",
    "sh build.sh",
    "python3 x.py",
    "git log --oneline",
    "git commit -m 'system(\"x\") is gone'",
    "sed 's/were/was/' x",
    "sed -n '/write/p' x",
    "sed -i 's/read/wrote/g' x",
    "awk '{print $1}' x",
    "awk -F, 'NR > 1 {s += $2} END {print s}' x",
    "vim README.md",
    "make test",
    "make -j4 CC=gcc",
    "tar czf a.tgz src",
    "rsync -a src/ out",
    "docker run --rm x",
    "cat <<'E' > notes.md\nrun rm -r vault\nE",
    "echo 'rm -r vault' > notes.txt",
    "grep -rn 'eval' src",
]


@each_row("command", HONEST)
def test_what_runs_nothing_else_tells_nothing(command):
    texts = [text for text in told(command) if "vault" in text or "system" in text or ">" in text]
    assert texts == []


@pytest.mark.parametrize(
    "command", ["sh -c " * 50 + "x", "echo '" + "x " * 20_000 + "' | sh", "git -c a.b='!x' " * 200]
)
def test_what_is_told_is_bounded(command):
    assert len(told(command)) <= command_steps.MOST_TOLD


def test_xargs_splits_what_it_reads_where_it_is_told_to():
    steps = command_steps.read("printf 'rm,-r,vault' | xargs -d, env", ["/nowhere"]).steps
    assert RUN in [" ".join(step.words[-3:]) for step in steps]
