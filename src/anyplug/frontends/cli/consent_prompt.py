"""Ask the person at the terminal whether a tier 2 plugin may run."""

import select
import sys

from anyplug.call.consent import Answer, Question
from anyplug.frontends.cli import render, terminal
from anyplug.frontends.cli.via_daemon import Elsewhere

ANSWERS: dict[str, Answer] = {"y": "once", "yes": "once", "r": "attachment", "a": "always"}


def ask(question: Question, elsewhere: Elsewhere) -> Answer | None:
    """Print the question and read the answer; return None if somebody answers in another face first."""
    _put(question)
    while True:
        ready, _, _ = select.select([sys.stdin, elsewhere], [], [])
        if elsewhere in ready and (said := elsewhere.said()):
            render.answered()
            terminal.say("", said)
            return None
        if sys.stdin in ready:
            return _answer()


async def wait_for_answer(question: Question) -> Answer:
    """Print the question and wait for the answer while other work goes on."""
    import anyio  # already imported with the host

    _put(question)
    await anyio.wait_readable(sys.stdin)  # a thread that reads could not be interrupted by Ctrl-C
    return _answer()


def _put(question: Question) -> None:
    may_use = render.line(", ".join(question.permissions)) or "nothing"
    if question.caller:
        asked = f"{question.caller} wants {question.plugin} to {question.wants} for it. It may use: {may_use}"
        terminal.say(asked, fold=True)
        terminal.say(f"called by: {render.line(' > '.join(question.callers))}", fold=True)
    else:
        terminal.say(f"{question.plugin} wants to {question.wants}. It may use: {may_use}", fold=True)
    if question.lent:
        lent = render.line(", ".join(question.lent))
        terminal.say(f"{question.caller} itself was not granted: {lent}", fold=True)
    if (
        question.asker or question.caller or question.asks_model
    ):  # about this very call, which a guard or plugin made or changed
        terminal.say(f"with: {render.line(question.given)}", fold=True)
    if question.warning:
        terminal.say(f"warning: {question.warning}")
    always = "[a]lways; " if question.may_last else ""
    terminal.put(f"Allow? [y]es, once; for this [r]un; {always}[N]o:")


def _answer() -> Answer:
    return ANSWERS.get(terminal.answer().strip().lower(), "no")
