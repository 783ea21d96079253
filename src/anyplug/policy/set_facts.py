"""What is known of a compiled set of policies before any event: which policies there are, and what they can read."""

import re
from typing import Final

import msgspec

from anyplug.policy.routing import Policy

OURS: Final = "cupcake.policies"
THEIRS: Final = "cupcake.global.policies"


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """A set of policies as it was read."""

    texts: dict[str, str]  # by file
    deciding: tuple[str, ...]  # the files with policies; the others are shared by these
    is_global: bool = False  # the user's own, for all projects
    needs_evaluate: bool = True

    @property
    def system(self) -> str:
        """The rule that gathers findings."""
        return "data.cupcake.global.system.evaluate" if self.is_global else "data.cupcake.system.evaluate"


class Origin(msgspec.Struct, frozen=True):
    """Where the rules of one reference are, perhaps in several files: told apart by their ids."""

    policy: str
    places: dict[str, tuple[str, int]]  # by rule id: file and row


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the compiler found out."""

    policies: tuple[Policy, ...]
    texts: dict[str, str]  # as compiled
    reads: frozenset[str] | None  # keys of the input; None: any
    origins: dict[str, Origin]  # by reference
    hidden: dict[str, tuple[str, str, int]]  # where decisions are that are not members of a verb's set
    impure: frozenset[str]  # references that may have another answer next time
    is_direct: bool  # rules are evaluated one by one, instead of the set's own evaluate.rego


def texts_of(policies: dict[str, str], shared: dict[str, str], *, is_global: bool, needs_evaluate: bool) -> Texts:
    """Return what is compiled of files: policies for all projects are in a package of their own."""
    texts = {**shared, **policies}
    return Texts(
        texts={file: _renamed(text) for file, text in texts.items()} if is_global else texts,
        deciding=tuple(policies),
        is_global=is_global,
        needs_evaluate=needs_evaluate,
    )


def short(package: str) -> str:
    """Return a package's own name."""
    return package.rpartition(".")[2]


def _renamed(text: str) -> str:
    """Move a global policy to the package of global ones."""
    return re.sub(r"\bcupcake\.policies\b", THEIRS, text)
