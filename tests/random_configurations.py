"""Writes configurations at random, as nobody would, but as everybody who reads them must understand."""

import json

from hypothesis import strategies as st

blanks = st.sampled_from(["", " ", "\n", "\n  ", "\t", ' // c, } "x": {\n', "/* , } */", "\n\n    "])
keys = st.sampled_from(["mcpServers", "anyplug", "anyplug-x", "a", 'q"\\', "ü", ""]) | st.text(max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """An object as nobody would indent it, with comments, trailing commas, other line ends, a BOM."""

    def blank() -> str:
        return draw(blanks)

    def write(depth: int, kind: str) -> str:
        if kind == "scalar" or depth > 3:
            return json.dumps(draw(scalars), ensure_ascii=draw(st.booleans()))
        items = []
        names = draw(st.lists(keys, max_size=4, unique=True))
        for name in names:
            holds = (
                "object" if depth == 0 and name == "mcpServers" else draw(st.sampled_from(["scalar", "object", "list"]))
            )
            key = f"{json.dumps(name)}{blank()}:{blank()}" if kind == "object" else ""
            items.append(f"{blank()}{key}{write(depth + 1, holds)}{blank()}")
        body = ",".join(items) + (f",{blank()}" if items and draw(st.booleans()) else "") or blank()
        return f"{{{body}}}" if kind == "object" else f"[{body}]"

    text = f"{blank()}{write(0, 'object')}{blank()}"
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return "\ufeff" * draw(st.booleans()) + text


toml_names = st.sampled_from(["a", "b-1", '"q.x"', "'l'", "mcp_servers", "hooks"])
toml_values = st.sampled_from(
    ["1", "true", '"s # [x]"', "'l'", '"""\n[t]\nk = 1\n"""', "'''\n'''", "[1, # ]\n 2]", '{x = "]"}', "1979-05-27"]
)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Headers and keys at random; only what the standard library accepts is used."""
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        names = draw(st.lists(toml_names, min_size=1, max_size=3))
        header = draw(st.sampled_from(["[{}]", "[ {} ] # c", "[[{}]]", "  [{}]", ""]))
        parts.append(header.format(" . ".join(names)))
        pairs = draw(st.lists(st.tuples(toml_names, toml_values, st.sampled_from(["", " # c", "  "])), max_size=3))
        parts += [f"{name} = {value}{end}" for name, value, end in pairs]
        parts.append(draw(st.sampled_from(["", "# note", "\t"])))
    text = "\n".join(parts) + draw(st.sampled_from(["", "\n", "\n\n"]))
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text
