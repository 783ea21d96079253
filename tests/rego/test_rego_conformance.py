"""OPA's own cases: never a wrong answer, and refused only what we decided not to support."""

import conformance
import pytest

from rows import each_row

CASES = conformance.cases()
MAY_BE_REFUSED = (
    "cryptox509", "graphql", "invalidkeyerror", "jwt", "netlookupipaddr", "providers-aws", "regoparsemodule",
)  # fmt: skip
TEST_ONLY = "test.sleep"  # a builtin that OPA has in its own tests only
if not CASES:
    pytest.skip(f"no OPA cases at {conformance.PLACE}: set REGO_CONFORMANCE to their folder", allow_module_level=True)


@each_row("category", sorted({case.category for case in CASES}))
def test_a_case_is_answered_as_opa_answers_it(category):
    wrong, refused = [], []
    for case in CASES:
        if case.category == category:
            answer = conformance.judge(case)
            line = f"{case.file}: {case.note}: {answer.why}"
            if answer.kind == "wrong":
                wrong.append(line)
            elif answer.kind == "refused" and not category.startswith(MAY_BE_REFUSED) and TEST_ONLY not in answer.why:
                refused.append(line)
    assert wrong == []
    assert refused == []
