"""The book of questions: any face lists and answers them, and the first answer counts."""

import functools

import anyio
import pytest

from anyplug.call.consent import Attachment, Given, Question
from anyplug.call.open_questions import AlreadyAnswered, Answered, OpenQuestions, QuestionNotFound, Waiting
from anyplug.call.question_texts import texts
from anyplug.model.errors import Denied, NeedsAnswer

pytestmark = pytest.mark.anyio


def question(name: str = "q1", **changes) -> Question:
    facts = {"plugin": "kit", "tool": "saw", "arguments": {}, "permissions": ("network",), "warning": ""}
    return Question(id=name, **{**facts, **changes})


async def forever(_: Question) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def asked(book: OpenQuestions, attachment: Attachment, given: list, **changes) -> None:
    try:
        given.append(await attachment.put(question(**changes), "kit", book))
    except Denied as error:
        given.append(error)


async def opened(book: OpenQuestions) -> Waiting:
    while not book.all:
        await anyio.sleep(0.001)
    return book.all[0]


async def test_another_face_answers_and_the_askers_own_prompt_is_withdrawn():
    book, given, ended = OpenQuestions(), [], []

    async def ask(_: Question) -> str:
        try:
            return await forever(_)
        finally:
            ended.append("withdrawn")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, book, Attachment("cli", ask=ask), given)
        waiting = await opened(book)
        assert waiting.asks_elsewhere
        assert waiting.until is None
        book.answer("q1", "once", "console")
    assert given == [Given("once", "console")]
    assert ended == ["withdrawn"]
    assert given[0].reason == "once, in the console"
    assert book.all == []


async def test_the_second_answer_is_told_who_was_first():
    book, given = OpenQuestions(), []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, book, Attachment("cli", ask=forever), given)
        await opened(book)
        book.answer("q1", "no", "console")
        with pytest.raises(AlreadyAnswered) as late:
            book.answer("q1", "once", "chat")
    assert (late.value.answered.word, late.value.answered.by) == ("no", "console")
    with pytest.raises(QuestionNotFound):
        book.answer("another", "once", "chat")


async def test_where_the_asker_answers_itself_nobody_else_is_named():
    book, heard = OpenQuestions(), []
    book.listen(heard.append)

    async def ask(_: Question) -> str:
        return "attachment"

    attachment = Attachment("cli", ask=ask)
    assert await attachment.put(question(), "kit", book) == Given("attachment")
    assert [type(news) for news in heard] == [Waiting, Answered]
    assert (heard[1].word, heard[1].by) == ("attachment", "terminal")
    assert await attachment.put(question("q2"), "kit", book) == Given("attachment")
    assert len(heard) == 2, "a subject that is allowed is not asked about again"


async def test_a_plugins_own_call_is_never_allowed_permanently():
    assert Waiting(question(), Attachment("mcp"), None).words == ("once", "attachment", "always", "no")
    nested = Waiting(question(callers=("a", "plug/in")), Attachment("mcp"), None)
    assert nested.words == ("once", "attachment", "no")


async def test_an_answer_that_is_not_offered_leaves_the_question_open():
    book, given = OpenQuestions(), []
    async with anyio.create_task_group() as tasks:
        nested = functools.partial(asked, callers=("a", "plug/in"))
        tasks.start_soon(nested, book, Attachment("cli", ask=forever), given)
        await opened(book)
        with pytest.raises(Denied):
            book.answer("q1", "always", "console")
        assert book.all
        book.answer("q1", "no", "console")
    assert given == [Given("no", "console")]


async def test_without_anybody_to_ask_a_question_waits_while_a_person_watches():
    book, given = OpenQuestions(), []
    stop = book.watch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, book, Attachment("mcp"), given)
        waiting = await opened(book)
        assert not waiting.asks_elsewhere
        assert waiting.until is not None
        book.answer("q1", "attachment", "console")
    stop()
    stop()
    assert given == [Given("attachment", "console")]
    assert not book.is_watched


async def test_a_client_that_cannot_ask_leaves_it_to_whoever_watches():
    book, given = OpenQuestions(), []

    async def unable(_: Question) -> str:
        raise Denied("host", "this client cannot ask its user", "")

    with pytest.raises(Denied):
        await Attachment("mcp", ask=unable).put(question(), "kit", book)
    book.watch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, book, Attachment("mcp", ask=unable), given)
        await opened(book)
        book.answer("q1", "once", "console")
    assert given == [Given("once", "console")]


async def test_a_question_that_ends_its_call_is_withdrawn():
    book, heard = OpenQuestions(), []
    book.listen(heard.append)

    async def ending(asked: Question) -> str:
        raise NeedsAnswer(asked.plugin, asked.tool, asked.id)

    with pytest.raises(NeedsAnswer):
        await Attachment("mcp", ask=ending).put(question(), "kit", book)
    assert heard[-1].word == "withdrawn"
    assert book.all == []


async def test_a_cancelled_call_takes_its_question_back():
    book, given = OpenQuestions(), []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asked, book, Attachment("cli", ask=forever), given)
        await opened(book)
        tasks.cancel_scope.cancel()
    assert book.all == []
    assert book.answered("q1").word == "withdrawn"


async def test_the_sentences_name_who_asks_and_how_long_an_answer_lasts():
    said = texts(Waiting(question(), Attachment("cli"), None))
    assert said["title"] == "kit wants to run saw, for this run of the command."
    assert "until the command ends" in said["attachment"]
    nested = texts(Waiting(question(callers=("cli-1", "glue/join")), Attachment("mcp"), None))
    assert nested["title"].startswith("glue wants kit to run saw")
    assert nested["always"] == ""
    ruled = texts(Waiting(question(asker="policy:ASK"), Attachment("mcp"), None))
    assert "this rule" in ruled["always"]
