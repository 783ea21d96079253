"""YAML into plain values: for METADATA comments and `yaml.unmarshal`.

Reads one document: block and flow collections, every style of scalar, anchors, aliases, merge keys, the core tags.
Complex keys (`? `), directives and other tags are refused. Knows nothing of Rego.
"""

from typing import Any

from anyplug.rego.yaml.blocks import Blocks
from anyplug.rego.yaml.yaml_cursor import YamlError

__all__ = ["YamlError", "load"]


def load(text: str, *, old_booleans: bool = False, unique: bool = False) -> Any:
    """Read one document; `old_booleans` takes yes, no, on and off for booleans, `unique` no key twice.

    Raises YamlError.
    """
    try:
        return Blocks(text, old_booleans=old_booleans, unique=unique).document()
    except RecursionError:
        msg = "nested too deeply"
        raise YamlError(msg) from None
