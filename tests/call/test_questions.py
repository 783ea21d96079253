"""What a person is asked about a call, and what counts as an answer."""

import pytest

from anyplug.call.consent import Attachment, Question
from anyplug.call.open_questions import OpenQuestions
from anyplug.frontends.mcp import consent_elicitation
from anyplug.model.errors import Denied

pytestmark = pytest.mark.anyio


def question(**arguments: object) -> Question:
    return Question(id="1", plugin="kit", tool="act", arguments=arguments, permissions=(), warning="")


@pytest.mark.claim("question-shows-arguments")
def test_a_long_argument_hides_no_other():
    given = question(first="x" * 9_000, command="rm -rf /", path=["/etc/passwd"]).given
    assert '"command": "rm -rf /", "path": ["/etc/passwd"]' in given
    assert f"… ({9_000 + 2 - 200} more characters)" in given


def test_arguments_that_are_not_shown_are_counted():
    given = question(**{f"{'n' * 100}{number}": "v" * 100 for number in range(500)}).given
    assert "… and 485 more arguments" in given
    assert len(given) < 3_000


def test_short_arguments_are_shown_as_they_are():
    assert question(text="hi", top=3).given == '{"text":"hi","top":3}'


@pytest.mark.parametrize("said", [["once"], {"once": 1}, None, 1, True, "always", "ONCE", [["once"]]])
def test_an_answer_of_another_shape_is_a_no(said):
    assert consent_elicitation.read("accept", {consent_elicitation.FIELD: said}, for_all=True) == "no"


@pytest.mark.claim("no-internal-errors")
async def test_an_internal_error_does_not_reach_who_asked():
    async def ask(_: Question) -> str:
        raise TypeError("unhashable type: 'list'")

    with pytest.raises(Denied) as denied:
        await Attachment(ask=ask).put(question(), "kit", OpenQuestions())
    assert "TypeError" not in f"{denied.value.message} {denied.value.hint}"
    assert "unhashable" not in f"{denied.value.message} {denied.value.hint}"


@pytest.mark.parametrize("said", [["once"], {}, 1, None])
async def test_an_answer_that_is_no_word_is_a_no(said):
    async def ask(_: Question) -> object:
        return said

    assert (await Attachment(ask=ask).put(question(), "kit", OpenQuestions())).word == "no"
