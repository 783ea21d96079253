"""Call every builtin that we offer, here and in OPA, with generated arguments, and compare the answers.

`make rego-fuzz N=1000000 SEED=1` builds the OPA side (main.go, beside this file) and prints every difference. An
evaluation that ends with an error is a refusal, so it counts as `refused` where differences.toml gives the reason;
any other difference fails.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import tomllib
from decimal import Decimal
from typing import Any

from anyplug import rego
from anyplug.rego.builtins.every import TABLE
from anyplug.rego.values import rego_errors
from anyplug.rego.values.text import valid
from anyplug.rego.values.values import FALSE, NULL, TRUE, Object, Set

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from arguments import ARGUMENTS, anything  # noqa: E402 - found beside this file

BATCH = 500  # calls
HUGE = 2_000  # numbers or addresses in an answer
MEMORY = 4 << 30  # bytes for the OPA side: a call that needs more is a mistake in is_huge
MOST_DIGITS = 4_300  # that Python reads
SHOWN = 600  # characters of an answer that is printed
MISSING = 0.3  # of all rules lack an argument
ILL_TYPED = 0.06  # of all calls have one argument of any kind
LONG = re.compile(r"-.*[0-9]{19}")
INFIX = {
    "equal": "==", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=", "plus": "+", "minus": "-", "mul": "*",
    "div": "/", "rem": "%", "and": "&", "or": "|",
}  # fmt: skip
WRITTEN = {"internal.member_2": "{0} in {1}", "internal.member_3": "({0}, {1} in {2})"}
CHANGING = frozenset({"rand.intn", "uuid.rfc4122", "time.now_ns", "opa.runtime"})  # compared by kind only
UNASKED = frozenset({"eq", "print", "rego.metadata.chain", "rego.metadata.rule"})  # no functions in OPA
PLAIN = {NULL: None, TRUE: True, FALSE: False}
with open(os.path.join(HERE, "differences.toml"), "rb") as _file:
    DIFFERENCES: dict[str, str] = tomllib.load(_file)["differences"]


def tagged(value: Any) -> str:
    """Write a value as main.go reads it."""
    kind = value.__class__
    if kind is str:
        return json.dumps(value)
    if kind is int:
        return str(value)
    if kind is Decimal:
        digits = str(value).replace("E", "e")
        return digits if set(digits) & set(".e") else f"{digits}e0"  # OPA tells integers by their text
    if kind is tuple:
        return f"[{','.join(map(tagged, value))}]"
    if kind is Set:
        return f'{{"s":[{",".join(map(tagged, value.ordered()))}]}}'
    if kind is Object:
        return f'{{"o":[{",".join(f"[{tagged(key)},{tagged(item)}]" for key, item in value.items())}]}}'
    return str(value.text)


def odd_number(text: str) -> Any:
    """Read what Go reads as a number and JSON does not."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return f"number {text}"


def read(document: Any) -> Any:
    """Make a value of what main.go wrote."""
    if isinstance(document, dict):
        if "n" in document:
            return odd_number(document["n"])
        if "s" in document:
            return Set(map(read, document["s"]))
        return Object({read(key): read(value) for key, value in document["o"]})
    if isinstance(document, list):
        return tuple(map(read, document))
    return (
        {None: NULL, True: TRUE, False: FALSE}[document] if document is None or isinstance(document, bool) else document
    )


def called(name: str, arity: int) -> rego.Query:
    args = [f"input[{index}]" for index in range(arity)]
    if name in INFIX:
        term = f"{args[0]} {INFIX[name]} {args[1]}"
    else:
        term = WRITTEN[name].format(*args) if name in WRITTEN else f"{name}({', '.join(args)})"
    return rego.compile({}).query(f"x := {term}")


NEGATED = ("not {0}", "not {0} == input.y", "not {0} != input.y", "not [{0}] == input.y", "not is_string({0})", "{0}")


def ruled(name: str, args: tuple[Any, ...], form: str) -> str:
    """Write a module whose rule negates a call; an argument that input does not have is undefined."""
    terms = [f"input.a[{index}]" for index in range(len(args))]
    term = f"{name}({', '.join(terms)})"
    return f"package t\n\nimport rego.v1\n\np if {form.format(term)}\n"


def compare_rules(program: str, seed: int, count: int, names: list[str]) -> int:
    """Compare rules with negated calls, with arguments that are wrong or missing; gives the number of differences."""
    rng = random.Random(seed)
    different = compared = 0
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=bounded) as opa:  # noqa: PLW1509 - no threads here
        assert opa.stdin is not None
        assert opa.stdout is not None
        for _ in range(count):
            name, args = generate(rng, names)
            args = args[: rng.randrange(len(args))] if args and rng.random() < MISSING else args
            arity = TABLE[name].arity
            module = ruled(name, (None,) * (arity if arity >= 0 else len(args)), rng.choice(NEGATED))
            try:
                given = {"a": list(map(to_json, args)), "y": rng.choice((0, True, "", None))}
            except ValueError:
                continue  # no JSON, so no input
            opa.stdin.write(json.dumps({"f": "data.t.p", "m": {"t.rego": module}, "i": given}).encode() + b"\n\n")
            opa.stdin.flush()
            said = json.loads(opa.stdout.readline())
            theirs_ = "refused" if "h" in said else bool(said["v"])
            try:
                ours: Any = rego.compile({"t.rego": module}).eval("data.t.p", given) is True
            except rego.RegoErrors as error:
                ours = f"not loaded: {error}"
            except rego_errors.EvalError:
                ours = "refused"
            compared += 1
            if ours not in (theirs_, "refused"):
                different += 1
                print(f"{module.splitlines()[-1]}  {json.dumps(given)[:SHOWN]}: ours {ours}, OPA {str(said)[:SHOWN]}")
    print(f"seed {seed}: {compared} rules, {different} differences")
    return different


def to_json(value: Any) -> Any:
    """Give a value as JSON. Raises ValueError if it is none."""
    kind = value.__class__
    if kind is tuple:
        return list(map(to_json, value))
    if kind is Object and all(key.__class__ is str for key in value):
        return {key: to_json(item) for key, item in value.items()}
    if kind is str or (kind is int and abs(value) < 1 << 53):
        return value
    if value in PLAIN:
        return PLAIN[value]
    raise ValueError


class Ours:
    """Our side: each builtin compiled once, called as policies call it."""

    def __init__(self) -> None:
        self.policies = rego.compile({})
        self.queries: dict[tuple[str, int], rego.Query] = {}

    def answer(self, name: str, args: tuple[Any, ...]) -> tuple[str, Any]:
        query = self.queries.get((name, len(args)))
        if query is None:
            query = self.queries[name, len(args)] = called(name, len(args))
        context = self.policies.context(args)
        found: list[tuple[Any, ...]] = []
        try:
            query._run(context, found)
        except rego_errors.EvalError as error:
            return "refused", str(error)
        except Exception as error:  # noqa: BLE001 - what nobody foresaw: an EvalError for callers, a difference here
            return "crashed", f"{type(error).__name__}: {error}"
        if context.failures:
            return "undefined", context.failures[0][0]
        return ("value", [row[0] for row in found]) if found else ("undefined", "")


def long_integer(digits: str) -> Any:
    """Read an integer; one that Python does not read is compared as text."""
    return int(digits) if len(digits) < MOST_DIGITS else f"number {digits}"


def theirs(line: bytes) -> tuple[str, Any]:
    said = json.loads(line, parse_float=Decimal, parse_int=long_integer)
    if "h" in said:
        return "refused", said["h"]
    if "e" in said:
        return "undefined", said["e"]
    values = [read(value) for value in said["v"]]
    return ("value", values) if values else ("undefined", "")


def json_like(value: Any) -> Any:
    """Replace what is no UTF-8, as main.go does where it writes JSON."""
    if value.__class__ is str:
        return valid(value)
    if value.__class__ is tuple:
        return tuple(map(json_like, value))
    return (
        Object({json_like(key): json_like(item) for key, item in value.items()}) if value.__class__ is Object else value
    )


def same(name: str, ours: tuple[str, Any], opa: tuple[str, Any]) -> bool:
    if ours[0] != opa[0]:
        return False
    if ours[0] != "value" or name in CHANGING:
        return True
    if name == "json.match_schema":  # OPA lists the errors of an object in any order
        return [(value[0], sorted(map(str, value[1]))) for value in ours[1]] == [
            (value[0], sorted(map(str, value[1]))) for value in opa[1]
        ]
    ours = (ours[0], [json_like(value) for value in ours[1]])
    return set(ours[1]) == set(opa[1]) if TABLE[name].many else bool(ours[1] == opa[1])


def generate(rng: random.Random, names: list[str]) -> tuple[str, tuple[Any, ...]]:
    while True:
        name = rng.choice(names)
        args = ARGUMENTS[name](rng)
        if args and rng.random() < ILL_TYPED:
            at = rng.randrange(len(args))
            args = (*args[:at], anything(rng), *args[at + 1 :])
        if not is_huge(name, args):
            return name, args


def is_huge(name: str, args: tuple[Any, ...]) -> bool:
    """Whether OPA would fill the memory with the answer, which we refuse by a bound."""
    if name in {"bits.lsh", "numbers.range", "numbers.range_step"}:
        return any(arg.__class__ in {int, Decimal} and abs(arg) > HUGE for arg in args[name == "bits.lsh" :])
    if name == "semver.compare":
        return all(arg.__class__ is str and LONG.search(arg) for arg in args)  # OPA never returns from some of these
    if name == "net.cidr_expand" and args[0].__class__ is str:
        address, _, size = args[0].partition("/")
        return not size.isdecimal() or int(size) + HUGE.bit_length() < (128 if ":" in address else 32)
    return False


def work(job: tuple[str, int, int, list[str]]) -> tuple[dict[str, collections.Counter[str]], dict[str, list[str]]]:
    """Compare so many calls."""
    program, seed, count, names = job
    rng = random.Random(seed)
    ours = Ours()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    shown: dict[str, list[str]] = collections.defaultdict(list)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=bounded) as opa:  # noqa: PLW1509 - no threads here
        assert opa.stdin is not None
        assert opa.stdout is not None
        for start in range(0, count, BATCH):
            calls = [generate(rng, names) for _ in range(min(BATCH, count - start))]
            lines = [f'{{"f":{json.dumps(name)},"a":{tagged(args)}}}\n' for name, args in calls]
            opa.stdin.write("".join(lines).encode() + b"\n")
            opa.stdin.flush()
            answers = [ours.answer(name, args) for name, args in calls]
            for (name, args), mine, line in zip(calls, answers, lines, strict=True):
                other = theirs(opa.stdout.readline())
                if tagged(args) != line[line.index('"a":') + 4 : -2]:
                    mine = ("changed its argument", "")  # noqa: PLW2901 - worse than any answer
                if same(name, mine, other):
                    kind = mine[0]
                else:
                    kind = f"ours {mine[0]}, OPA {other[0]}"
                    if mine[0] == "refused" and name in DIFFERENCES:
                        kind = "refused here"
                counts[name][kind] += 1
                if "OPA" in kind and len(shown[name, kind]) < 12:
                    shown[name, kind].append(
                        f"{line.strip()}\n    ours {repr(mine[1])[:SHOWN]}\n    OPA  {repr(other[1])[:SHOWN]}"
                    )
    return counts, shown


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def build(place: str) -> str:
    program = os.path.join(place, "opa-calls")
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE, check=True)
    return program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-n", type=int, default=1_000_000, help="how many calls")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rules", type=int, default=20_000, help="how many rules that negate a call")
    parser.add_argument("--only", nargs="*", help="builtins")
    parser.add_argument("--program", help="the OPA side, already built")
    options = parser.parse_args()
    offered = {name for name, each in TABLE.items() if not each.refused} - UNASKED
    if missing := offered - set(ARGUMENTS):
        print(f"no arguments for {', '.join(sorted(missing))}: add them to arguments.py")
        return 1
    names = sorted(set(options.only or offered) & offered)
    with tempfile.TemporaryDirectory() as place:
        program = options.program or build(place)
        pieces = max(options.jobs, options.n // 20_000)
        jobs = [(program, options.seed + index, options.n // pieces, names) for index in range(pieces)]
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        shown: dict[Any, list[str]] = collections.defaultdict(list)
        plain = [name for name in names if name not in INFIX and name not in WRITTEN and name not in CHANGING]
        negated = compare_rules(program, options.seed, options.rules, plain)
        with multiprocessing.Pool(options.jobs) as pool:
            for some, more in pool.imap_unordered(work, jobs):
                for name, found in some.items():
                    counts[name] += found
                for key, lines in more.items():
                    shown[key] += lines
    differences = 0
    for name, kind in sorted(shown):
        differences += counts[name][kind]
        print(f"{name}: {kind}: {counts[name][kind]} of {counts[name].total()}")
        for line in shown[name, kind][:6]:
            print(f"  {line}")
    every = sum(counts.values(), collections.Counter())
    print(f"seed {options.seed}: {every.total()} calls of {len(counts)} builtins, {differences} differences")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(every.items())))
    return 1 if differences or negated else 0


if __name__ == "__main__":
    sys.exit(main())
