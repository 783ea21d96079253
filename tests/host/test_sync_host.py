"""A host for plain code: the same results, questions from plain functions, and nothing left behind."""

import signal
import threading
import time
import traceback

import pytest

import processes
from anyplug import Attachment, Host, Question, SyncHost
from anyplug.host.sync_host import THREAD
from anyplug.model.errors import PluginNotFound
from plugin_folders import cyclop, python, stavrobot

ECHO = python("print(json.dumps({'result': {'said': given['input'].get('text', '')}}))")
TIER_2 = {"permissions": ["network"]}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREAD]


@pytest.mark.anyio
async def test_it_gives_what_a_host_gives_and_closes_cleanly(tmp_path):
    plugin = cyclop(tmp_path, "echo", ECHO)
    async with Host(plugins=[plugin], roots=[]) as host:
        expected = [await host.call("echo", {"text": "x"}), await host.call("nothing")]
    import asyncio

    def plainly():
        with SyncHost(plugins=[plugin], roots=[]) as host:
            assert [tool.name for tool in host.tools] == ["echo"]
            assert host.preview("echo", {"text": "x"}).allowed
            chain = host.run_chain([{"tool": "echo", "args": {"text": "y"}}])
            assert chain.success
            with pytest.raises(ValueError, match="own"):
                host.run(raises)
            return [host.call("echo", {"text": "x"}), host.call("nothing")]

    got = await asyncio.to_thread(plainly)
    for one, other in zip(got, expected, strict=True):
        assert (one.text, one.structured, one.error) == (other.text, other.structured, other.error)
    assert threads() == []


async def raises():
    raise ValueError("of my own")


def test_plain_functions_answer_questions_one_at_a_time_and_threads_may_call_together(tmp_path):
    folder = cyclop(tmp_path / "root", "careful", **TIER_2)
    other = cyclop(tmp_path / "root", "wary", **TIER_2)
    at_once: list[int] = []
    asked: list[str] = []
    inside = 0

    def ask(question: Question):
        nonlocal inside
        inside += 1
        at_once.append(inside)
        time.sleep(0.05)
        asked.append(question.plugin)
        inside -= 1
        return "no" if question.plugin == "wary" else "once"

    with SyncHost(roots=[tmp_path / "root"], ask=ask) as host:
        for entry in host.plugins:
            host.approve(entry.plugin)
        results = {}
        callers = [
            threading.Thread(target=lambda name=name: results.update({name: host.call(name)}))
            for name in ("careful", "wary")
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert results["careful"].text == "done"
        assert results["wary"].error.code == "denied"
        assert host.call("wary", attachment=Attachment(yes=True)).text == "done"
    assert sorted(asked) == ["careful", "wary"]
    assert at_once == [1, 1]
    assert folder != other


def test_it_refuses_before_and_after_and_reports_what_is_wrong_with_the_settings(tmp_path):
    host = SyncHost(roots=[])
    with pytest.raises(RuntimeError, match="with SyncHost"):
        host.call("x")
    with host:
        assert host.call("x").error.code == "not_found"
    with pytest.raises(RuntimeError, match="with SyncHost"):
        host.call("x")
    assert threads() == []


def test_an_interrupted_wait_cancels_the_call_and_jobs_are_listed(tmp_path):
    plugin = stavrobot(tmp_path, "bundle", python("time.sleep(600)"), tool={"async": True})
    with SyncHost(plugins=[plugin], roots=[]) as host:
        started = host.call("act", {"text": "x"}, wait=False)
        job = started.metadata["job"]
        assert [one.id for one in host.jobs()] == [job]
        host.cancel_job(job)
        assert processes.until(lambda: host.jobs()[0].state == "cancelled")

        def interrupt():
            processes.until(lambda: bool(host.host._callers))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        assert threading.current_thread() is threading.main_thread(), "signals go there"
        person = threading.Thread(target=interrupt)
        person.start()
        with pytest.raises(KeyboardInterrupt):
            host.call("act", {"text": "x"})
        person.join()
        assert processes.until(lambda: not host.host._callers)


@pytest.mark.parametrize("host", [Host, SyncHost])
def test_arguments_of_a_wrong_type_are_refused_at_once(host, tmp_path):
    folder = cyclop(tmp_path, "echo", ECHO)
    for wrong in ({"plugins": folder}, {"roots": str(tmp_path)}, {"roots": tmp_path}, {"ask": "yes"}):
        with pytest.raises(TypeError, match="must be a"):
            host(**wrong)


def test_what_a_program_did_wrong_is_said_in_its_own_terms(tmp_path):
    with SyncHost(plugins=[cyclop(tmp_path, "echo", ECHO)], roots=[]) as host:
        with pytest.raises(PluginNotFound) as nobody:
            host.approve("nothing")
        assert nobody.value.hint == "`host.plugins` lists all plugins"
        assert "hint: `host.plugins` lists all plugins" in "".join(traceback.format_exception(nobody.value))
        with pytest.raises(TypeError, match="must be a text, not int"):
            host.call(5)
    with pytest.raises(TypeError, match="use `async with Host"), Host():
        pass


@pytest.mark.anyio
async def test_a_call_after_the_end_says_where_it_belongs(tmp_path):
    async with Host(plugins=[cyclop(tmp_path, "echo", ECHO)], roots=[]) as host:
        pass
    error = (await host.call("echo")).error
    assert (error.code, error.hint) == ("unavailable", "call it inside the host's `with` block")
