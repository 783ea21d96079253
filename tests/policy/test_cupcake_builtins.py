"""Our builtins beside Cupcake's own, on the same events: nothing that the original refuses is let through here."""

import json
import os
import re
from pathlib import Path

import cupcake_corpus as corpus
import pytest

from anyplug.policy import builtins
from anyplug.policy.policy_set import PolicySet

# What the original refuses, and should not; by builtin, with the reason.
FALSE_ALARMS = {
    "protected_paths": {
        "it is read, which the builtin allows": r"(cat|ls -la|grep -r x|head -3|tail|wc -l|sort|stat|sed -n 1p|"
        r"sed s/a/b/|awk 1|diff a) [^ >|;&]+( \| grep x)?|find \S+ -name x",
        "git only takes note of files in it": r"git add \S+",
    },
    "rulebook_security_guardrails": {},
    "git_block_no_verify": {},
    "system_protection": {"/dev/null holds nothing": r"git config core\.hooks[pP]ath /dev/null"},
    "sensitive_data_protection": {
        "a word inside of another": r".*(author\.py|tokenizer\.py|privateer\.md|authority\.ts|cookiecutter\.json)",
        "source code": r".*(session\.py|auth\.ts|sessions_view\.go)",
    },
    "cupcake_exec_protection": {"the folder is not the program": r".*\.cupcake.*"},
}
FEWEST_EVENTS = 2_000
GIT_HASH_DIGITS = 40


@pytest.fixture(scope="module", autouse=True)
def _somebody_elses_home():
    """Have `~` mean the same on every machine; nothing is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/nowhere/user")
        yield


def test_the_verdicts_are_about_these_events():
    kept = json.loads(corpus.VERDICTS.read_text())
    assert kept["events"] == corpus.digest()
    assert {len(kept[name]) for name in corpus.BUILTINS} == {len(list(corpus.events()))}
    assert len(list(corpus.events())) >= FEWEST_EVENTS
    assert {f"{name}.rego" for name in corpus.BUILTINS} <= set(kept["sources"])
    assert all(len(source["blob"]) == GIT_HASH_DIGITS for source in kept["sources"].values())
    assert not os.path.exists(corpus.PROJECT)
    assert Path(corpus.VERDICTS).stat().st_size < 1 << 20


@pytest.mark.claim("no-weaker-than-cupcake")
@pytest.mark.xdist_group("cupcake-corpus")  # one worker reads all events
@pytest.mark.parametrize("name", corpus.BUILTINS)
def test_no_event_is_decided_more_weakly_than_by_the_original(name):
    theirs = json.loads(corpus.VERDICTS.read_text())[name]
    enabled = builtins.enable(corpus.ENABLED)
    shared = {f"builtin/{builtins.SHARED}": enabled.texts[f"builtin/{builtins.SHARED}"]}
    ours = PolicySet({f"builtin/{name}.rego": enabled.texts[f"builtin/{name}.rego"]}, shared, needs_evaluate=False)
    weaker = []
    used = set()
    for refused, document in zip(theirs, corpus.documents(), strict=True):
        plan = ours.plan("PreToolUse", document["tool_name"])
        found = ours.findings(plan, document).findings if plan.matched else ()
        assert not any(finding.is_failure for finding in found)
        if refused == "1" and corpus.BUILTINS[name] not in {finding.verb for finding in found}:
            said = next(iter(document["args"].values()))
            listed = [why for why, pattern in FALSE_ALARMS[name].items() if re.fullmatch(pattern, str(said))]
            used.update(listed)
            weaker += [] if listed else [said]
    assert weaker == []
    assert used == set(FALSE_ALARMS[name])
