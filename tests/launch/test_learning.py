"""What a call needed, concluded from what it tried: pure, with events as the recorder gives them."""

import msgspec
import pytest

from anyplug.launch.learning import Around, Lesson, commands, conclude
from anyplug.runtime.sandbox.linux.syscall_recorder import Event
from anyplug.runtime.sandbox.profile import Locations, System, draw

SYSTEM = System(readable=("/lib",), executable=("/usr/bin/python3", "/usr/bin/cat"))
PROGRAMS = {"git": ("/usr/bin/git", "/usr/lib/git-core"), "/opt/odd": ("/opt/odd",)}


def find(name):
    return PROGRAMS.get(name, ())


@pytest.fixture
def place() -> Locations:
    return Locations(
        plugin="/h/plugins/p",
        data="/h/data/p",
        cache="/h/cache/p",
        home="/h",
        user="/home/ada",
        project="/home/ada/work",
    )


@pytest.fixture
def learn(place):
    """Conclude from events, for a plugin with these grants."""

    def conclude_from(*events: Event, granted=(), wider=(), has_failed=True) -> Lesson:
        around = Around(
            base=msgspec.structs.replace(draw((), place, SYSTEM, find), binding=("/home/ada/work/.cupcake",)),
            used=draw((*granted, *wider), place, SYSTEM, find),
            granted=tuple(granted),
            user=place.user,
            project=place.project,
            find=find,
            has_failed=has_failed,
        )
        return conclude(events, around)

    return conclude_from


def read(path):
    return Event(kind="read", path=path)


def test_what_every_plugin_may_do_needs_nothing(learn):
    lesson = learn(
        read("/lib/libc.so.6"), read("/h/plugins/p/main.py"), read("/h/data/p/x"), read("/usr/bin/cat"),
        Event(kind="execute", path="/usr/bin/python3"), Event(kind="make", path="/h/data/p/new"),
        Event(kind="make", path="/tmp/p/file"), Event(kind="socket", family="other", refused=True),
    )  # fmt: skip
    assert lesson == Lesson(needs=(), add=(), remove=(), keep=(), optional=(), never=())


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/home/ada/notes/a.md", "~/notes/a.md"),
        ("/home/ada", "~"),
        ("/home/ada/work", "."),
        ("/home/ada/work/src/a.py", "./src/a.py"),
        ("/srv/data", "/srv/data"),
    ],
)
def test_a_path_is_written_as_a_person_would(learn, path, scope):
    assert learn(read(path)).add == (f"filesystem:read:{scope}",)


def test_several_paths_of_one_folder_become_the_folder_but_never_a_wide_one(learn):
    assert learn(*(read(f"/home/ada/notes/{n}") for n in "abc")).add == ("filesystem:read:~/notes",)
    assert learn(*(read(f"/home/ada/notes/{n}") for n in "ab")).add == (
        "filesystem:read:~/notes/a",
        "filesystem:read:~/notes/b",
    )
    assert learn(*(read(f"/etc/{n}") for n in "abc")).add == tuple(f"filesystem:read:/etc/{n}" for n in "abc")
    assert len(learn(*(read(f"/home/ada/{n}") for n in "abcd")).add) == 4


def test_a_folder_that_was_listed_takes_what_was_read_in_it(learn):
    lesson = learn(read("/home/ada/notes"), read("/home/ada/notes/deep/a"))
    assert lesson.add == ("filesystem:read:~/notes",)
    assert lesson.needs[0].because == ("read ~/notes", "read ~/notes/deep/a")


def test_what_is_made_needs_the_folder_and_what_is_written_only_the_file(learn):
    made = learn(Event(kind="make", path="/home/ada/out/new.txt"))
    assert made.add == ("filesystem:write:~/out",)
    assert made.needs[0].because == ("write ~/out/new.txt",)
    assert learn(Event(kind="write", path="/home/ada/out/old.txt")).add == ("filesystem:write:~/out/old.txt",)


def test_what_may_be_written_need_not_be_granted_to_read(learn):
    assert learn(Event(kind="make", path="/home/ada/out/a"), read("/home/ada/out/a")).add == ("filesystem:write:~/out",)


def test_a_program_is_named_as_the_path_knows_it_and_brings_what_belongs_to_it(learn):
    lesson = learn(
        Event(kind="execute", path="/usr/bin/git"),
        Event(kind="execute", path="/usr/lib/git-core/git-remote-https"),
        Event(kind="execute", path="/opt/odd"),
        read("/usr/lib/git-core/mergetools"),
    )
    assert lesson.add == ("shell:exec:git", "shell:exec:/opt/odd")


@pytest.mark.parametrize(
    ("events", "needed"),
    [
        ([Event(kind="connect", family="internet", address="10.0.0.1", port=443, is_tcp=True)], ("network:*:443",)),
        ([Event(kind="connect", family="internet", address="10.0.0.1", port=53)], ("network",)),
        ([Event(kind="socket", family="internet", is_tcp=True)], ()),
        ([Event(kind="socket", family="internet", is_tcp=True, refused=True)], ("network",)),
        ([Event(kind="socket", family="internet")], ("network",)),
        ([Event(kind="listen", family="internet", address="0.0.0.0", port=80, is_tcp=True)], ("network",)),
        ([Event(kind="socket", family="unix", is_tcp=True)], ()),
        ([Event(kind="socket", family="unix", is_tcp=True, refused=True)], ("network:unix",)),
        ([Event(kind="connect", family="unix", address="/no/such/socket")], ()),
        ([Event(kind="connect", family="unix", address="@bus")], ("network:unix",)),
        (
            [
                Event(kind="connect", family="internet", address="10.0.0.1", port=443, is_tcp=True),
                Event(kind="connect", family="internet", address="10.0.0.1", port=53),
            ],
            ("network",),
        ),
    ],
)
def test_ports_are_enough_for_tcp_and_names_need_it_all(learn, events, needed):
    assert learn(*events).add == needed


def test_what_is_granted_and_was_not_used_goes_and_what_leaves_no_trace_stays(learn):
    lesson = learn(granted=("network", "filesystem:write", "shell:exec:git", "env:TOKEN", "clipboard"))
    assert lesson.remove == ("network", "filesystem:write", "shell:exec:git")
    assert lesson.keep == ("env:TOKEN", "clipboard")


def test_a_grant_of_everything_becomes_one_of_what_was_used(learn):
    lesson = learn(
        read("/home/ada/notes/a"), Event(kind="execute", path="/usr/bin/git"), granted=("filesystem:read", "shell:exec")
    )
    assert lesson.add == ("shell:exec:git", "filesystem:read:~/notes/a")
    assert lesson.remove == ("filesystem:read", "shell:exec")
    assert not any(need.refused for need in lesson.needs)


def test_a_scoped_grant_that_was_used_stays(learn):
    granted = ("filesystem:read:~/notes", "filesystem:write:./out", "shell:exec:git", "network:*:443")
    lesson = learn(
        read("/home/ada/notes/a"),
        read("/home/ada/work/out/b"),
        Event(kind="make", path="/home/ada/work/out/b"),
        Event(kind="execute", path="/usr/bin/git"),
        Event(kind="connect", family="internet", address="10.0.0.1", port=443, is_tcp=True),
        granted=granted,
    )
    assert (lesson.add, lesson.remove, lesson.keep) == ((), (), granted)


def test_what_was_refused_is_missing_only_if_the_call_failed(learn):
    failed, done = (learn(read("/home/ada/x"), has_failed=has_failed) for has_failed in (True, False))
    assert (failed.add, failed.optional) == (("filesystem:read:~/x",), ())
    assert (done.add, done.optional) == ((), ("filesystem:read:~/x",))
    opened = learn(read("/home/ada/x"), has_failed=False, wider=("filesystem:read",))
    assert (opened.add, opened.optional) == (("filesystem:read:~/x",), ())


def test_what_is_ours_and_its_own_code_can_never_be_granted(learn):
    lesson = learn(
        read("/h/anyplug.db"), read("/h/data/other/x"), Event(kind="write", path="/h/plugins/p/main.py"),
        Event(kind="make", path="/h/plugins/p/new.py"),
        Event(kind="write", path="/home/ada/work/.cupcake/rulebook.yml"),
    )  # fmt: skip
    assert lesson.needs == ()
    assert lesson.never == (
        "read anyplug's own files: /h/anyplug.db",
        "read anyplug's own files: /h/data/other/x",
        "change its own code: /h/plugins/p/main.py",
        "change its own code: /h/plugins/p/new.py",
        "change its own policies or permissions: /home/ada/work/.cupcake/rulebook.yml",
    )


def test_a_hidden_key_needs_a_grant_that_names_it(learn):
    lesson = learn(read("/home/ada/.ssh/config"))
    assert lesson.add == ("filesystem:read:~/.ssh/config",)


def test_its_own_tmp_is_no_need_but_what_lies_in_everybodys_is(learn):
    lesson = learn(Event(kind="write", path="/tmp/mine"), read("/tmp/mine"), read("/tmp"), read("/tmp/others"))
    assert lesson.add == ("filesystem:read:/tmp/others",)


def test_reasons_are_few(learn):
    lesson = learn(*(read(f"/srv/data/{number}") for number in range(9)))
    assert lesson.needs[0].because[-1] == "and 5 more"


def test_commands_can_be_pasted_into_a_shell():
    lesson = Lesson(
        needs=(),
        add=("network:*:443", "filesystem:read:~/my notes"),
        remove=("network",),
        keep=("clipboard",),
        optional=(),
        never=(),
    )
    assert commands("p", lesson) == (
        "anyplug grant p 'network:*:443' 'filesystem:read:~/my notes'",
        "anyplug ungrant p network",
    )
    assert commands("p", lesson, folder="/here/p") == (
        "anyplug install /here/p --grant clipboard --grant 'network:*:443' --grant 'filesystem:read:~/my notes'",
    )
    nothing = Lesson(needs=(), add=(), remove=("network",), keep=(), optional=(), never=())
    assert commands("p", nothing, folder="/here/p") == ("anyplug install /here/p", "anyplug ungrant p network")
