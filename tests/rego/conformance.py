"""OPA's own cases, found through a path: what our Rego answers to them, by category.

`python tests/rego/conformance.py` prints right, refused and wrong; REGO_CONFORMANCE says where the cases are.
"""

import collections
import json
import os
import sys
from typing import Any

import msgspec

from anyplug import rego
from anyplug.rego import yaml

PLACE = os.environ.get("REGO_CONFORMANCE") or os.path.join(
    os.path.dirname(__file__), "..", "..", "..", "shared", "rego-conformance"
)
REFUSED = "rego_not_supported"
TIMES = 3  # that each prepared query is evaluated: an answer must not depend on the ones before
SECONDS = 10.0  # for one case: all of them together take less


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case, as OPA writes it."""

    note: str
    query: str
    file: str = ""
    modules: list[str] | None = None
    data: Any = None
    input: Any = msgspec.UNSET
    input_term: str | None = None
    want_result: Any = msgspec.UNSET
    want_error: str | None = None
    want_error_code: str | None = None
    strict_error: bool = False
    sort_bindings: bool = False

    @property
    def category(self) -> str:
        return self.file.partition("/")[0]


class Answer(msgspec.Struct, frozen=True):
    """right, refused or wrong, and why."""

    kind: str
    why: str = ""


def cases() -> list[Case]:
    """Read every case; none where the folder is not there."""
    found = []
    root = os.path.join(PLACE, "cases")
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            if name.endswith(".yaml"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    document = yaml.load(file.read())
                found += [
                    msgspec.convert({**case, "file": os.path.relpath(path, root)}, Case) for case in document["cases"]
                ]
    return found


def judge(case: Case) -> Answer:
    """Run one case."""
    wants_error = case.want_error is not None or case.want_error_code is not None
    try:
        got = answers(case)
    except rego.RegoErrors as error:
        refused = all(fault.code == REFUSED for fault in error.faults)
        return Answer("refused" if refused else "wrong", str(error))
    except rego.EvalError as error:
        where = f"{error.where.file}:{error.where.row}: " if error.where else ""
        said = f"{where}{error.code}: {error.message}"
        fits = error.code == (case.want_error_code or error.code) and (case.want_error or "") in said
        return Answer("right") if wants_error and fits else Answer("wrong", said)
    if wants_error:
        return Answer("wrong", f"wanted an error ({case.want_error_code}: {case.want_error}), got {got}")
    if comparable(got, case.sort_bindings) == comparable(case.want_result or [], case.sort_bindings):
        return Answer("right")
    return Answer("wrong", f"wanted {case.want_result}, got {got}")


def answers(case: Case) -> list[dict[str, Any]]:
    modules = {f"test-{number}.rego": text for number, text in enumerate(case.modules or [])}
    policies = rego.compile(modules, data=case.data or {})
    given = case.input
    if case.input_term is not None:
        term = rego.compile({"input.rego": f"package term\nvalue := {case.input_term}"})
        given = term.query("data.term.value = x").answers(raw=True)[0]["x"]
    query = policies.query(case.query)
    first, *again = [_once(query, case, given) for _ in range(TIMES)]
    for other in again:
        if not isinstance(first, rego.EvalError) and comparable(other, case.sort_bindings) == comparable(
            first, case.sort_bindings
        ):
            continue
        if str(other) != str(first):
            msg = f"answered {first} at first, then {other}"
            raise rego.EvalError(msg)
    if isinstance(first, rego.EvalError):
        raise first
    return first


def _once(query: rego.Query, case: Case, given: Any) -> list[dict[str, Any]] | rego.EvalError:
    try:
        return query.answers(given, strict=case.strict_error, seconds=SECONDS)
    except rego.EvalError as error:
        return error


def comparable(value: Any, sort: bool, top: bool = True) -> Any:
    """Numbers by value, answers in any order, and lists too where the case says so."""
    if isinstance(value, dict):
        return {key: comparable(item, sort, top=False) for key, item in value.items()}
    if isinstance(value, list):
        items = [comparable(item, sort, top=False) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True)) if sort or top else items
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return int(value) if value == int(value) else float(value)


def main() -> int:
    found = cases()
    if not found:
        print(f"no cases at {os.path.normpath(PLACE)}: set REGO_CONFORMANCE to the folder that has them")
        return 1
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for case in found:
        answer = judge(case)
        table[case.category][answer.kind] += 1
        if answer.kind == "wrong":
            print(f"WRONG {case.file}: {case.note}: {answer.why}")
    print(f"{'':36}{'right':>8}{'refused':>8}{'wrong':>8}")
    for category, counts in [*sorted(table.items()), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{category:36}{counts['right']:8}{counts['refused']:8}{counts['wrong']:8}")
    return 1 if any(counts["wrong"] for counts in table.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
