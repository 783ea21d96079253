"""Values as text and back: base64, hex, URL queries, URIs, JSON and YAML."""

import base64
import binascii
import json
import re
from typing import Any, Final
from urllib.parse import quote_plus

from anyplug.rego import yaml
from anyplug.rego.builtins import addresses, yaml_text
from anyplug.rego.builtins.builtin_table import ANY, OBJECT, STRING, builtin, can_be_read, wrong
from anyplug.rego.values import numbers
from anyplug.rego.values.json import from_json
from anyplug.rego.values.rego_errors import BuiltinError, NotSupported, OperandError
from anyplug.rego.values.text import json_indented, json_text, raw
from anyplug.rego.values.values import FALSE, NULL, TRUE, Object, Set, type_name

MAX_TEXT: Final = 16 * 1024 * 1024  # characters of a document that is read
OPTIONS: Final = frozenset({"pretty", "indent", "prefix"})
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")
_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


def _text(bits: bytes) -> str:
    """Decode; bytes that are not UTF-8 stay what they are, as in OPA."""
    return bits.decode("utf-8", "surrogateescape")


def _illegal(text: str, alphabet: str) -> BuiltinError:
    at = next(
        (index for index, char in enumerate(text) if not (char.isascii() and (char.isalnum() or char in alphabet))),
        len(text),
    )
    return BuiltinError(f"illegal base64 data at input byte {at}")


@builtin("base64.encode", STRING)
def base64_encode(text: Any) -> Any:
    """Encode."""
    return base64.b64encode(raw(text)).decode()


def _standard(text: str) -> bytes:
    plain = text.replace("\n", "").replace("\r", "")
    if not _BASE64.match(plain) or "\n" in plain[-1:]:
        raise _illegal(plain, "+/")
    return base64.b64decode(plain)


@builtin("base64.decode", STRING)
def base64_decode(text: Any) -> Any:
    """Decode."""
    return _text(_standard(text))


@builtin("base64.is_valid", ANY)
def base64_is_valid(text: Any) -> Any:
    """Return whether a text can be decoded."""
    return can_be_read(_standard, text)


@builtin("base64url.encode", STRING)
def base64url_encode(text: Any) -> Any:
    """Encode for URLs."""
    return base64.urlsafe_b64encode(raw(text)).decode()


@builtin("base64url.encode_no_pad", STRING)
def base64url_encode_no_pad(text: Any) -> Any:
    """Encode for URLs, without padding."""
    return base64.urlsafe_b64encode(raw(text)).decode().rstrip("=")


@builtin("base64url.decode", STRING)
def base64url_decode(text: Any) -> Any:
    """Decode what is meant for URLs, padded or not."""
    padding = "" if text.endswith("=") else {0: "", 2: "==", 3: "="}.get(len(text) % 4)
    if padding is None:
        msg = f"illegal base64url string: {text}"
        raise BuiltinError(msg)
    plain = text.replace("\n", "").replace("\r", "") + padding
    if "+" in plain or "/" in plain:
        raise _illegal(plain, "-_")
    plain = plain.replace("-", "+").replace("_", "/")
    if not _BASE64.match(plain):
        raise _illegal(plain, "+/")
    return _text(base64.b64decode(plain))


@builtin("hex.encode", STRING)
def hex_encode(text: Any) -> Any:
    """Encode."""
    return raw(text).hex()


@builtin("hex.decode", STRING)
def hex_decode(text: Any) -> Any:
    """Decode."""
    for char in text:
        if char not in "0123456789abcdefABCDEF":
            msg = f"encoding/hex: invalid byte: U+{ord(char):04X} {char!r}"
            raise BuiltinError(msg)
    try:
        return _text(binascii.unhexlify(text))
    except ValueError:
        msg = "encoding/hex: odd length hex string"
        raise BuiltinError(msg) from None


@builtin("urlquery.encode", STRING)
def urlquery_encode(text: Any) -> Any:
    """Encode a text for a query."""
    return quote_plus(raw(text), safe="~")


def _unquoted(text: str) -> str:
    broken = _BROKEN.search(text)
    if broken:
        msg = f'invalid URL escape "{broken[0]}"'
        raise BuiltinError(msg)
    return _text(_ESCAPED.sub(lambda match: bytes((int(match[1], 16),)), raw(text.replace("+", " "))))


@builtin("urlquery.decode", STRING)
def urlquery_decode(text: Any) -> Any:
    """Decode a text of a query."""
    return _unquoted(text)


@builtin("urlquery.encode_object", OBJECT)
def urlquery_encode_object(value: Any) -> Any:
    """Write an object of texts, or of collections of texts, as a query."""
    pairs: list[tuple[str, str]] = []
    for key, item in value.pairs():
        if key.__class__ is not str:
            msg = f"urlquery.encode_object with a key that is not a string, but {type_name(key)}"
            raise NotSupported(msg)
        if item.__class__ is str:
            pairs.append((key, item))
            continue
        if item.__class__ not in {tuple, Set}:
            raise wrong(1, "object with values of type string, array or set", item)
        for each in item.ordered() if isinstance(item, Set) else item:
            if each.__class__ is not str:
                raise wrong(1, "object of strings, or arrays and sets of strings", each)
            pairs.append((key, each))
    return "&".join(f"{quote_plus(raw(key), safe='~')}={quote_plus(raw(item), safe='~')}" for key, item in pairs)


@builtin("urlquery.decode_object", STRING)
def urlquery_decode_object(text: Any) -> Any:
    """Read a query: a list of texts for each name."""
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        if not pair:
            continue
        if ";" in pair:
            msg = "invalid semicolon separator in query"
            raise BuiltinError(msg)
        key, _, value = pair.partition("=")
        found.setdefault(_unquoted(key), []).append(_unquoted(value))
    return Object({key: tuple(values) for key, values in found.items()})


@builtin("uri.parse", STRING)
def uri_parse(text: Any) -> Any:
    """Split a URI into its parts."""
    return Object(addresses.parse(text))


@builtin("uri.is_valid", ANY)
def uri_is_valid(text: Any) -> Any:
    """Return whether a text is a URI; an empty one is not."""
    return can_be_read(addresses.parse, text or NULL)


def _no_constant(name: str) -> Any:
    msg = f"invalid character {name[0]!r} looking for beginning of value"
    raise BuiltinError(msg)


def read_json(text: str) -> Any:
    """Read a JSON document. Raises BuiltinError if it is invalid."""
    if len(text) > MAX_TEXT:
        msg = f"a document of more than {MAX_TEXT} characters"
        raise NotSupported(msg)
    try:
        return from_json(
            json.loads(text, parse_float=numbers.parse, parse_int=numbers.parse, parse_constant=_no_constant)
        )
    except ValueError as error:
        if str(error).startswith("Extra data"):  # some of which OPA reads
            raise NotSupported(str(error)) from None
        raise BuiltinError(str(error)) from None
    except (RecursionError, ArithmeticError) as error:
        raise NotSupported(str(error)) from None


@builtin("json.marshal", ANY)
def json_marshal(value: Any) -> Any:
    """Write a value as JSON."""
    return json_text(value)


@builtin("json.marshal_with_options", ANY, OBJECT)
def json_marshal_with_options(value: Any, options: Any) -> Any:
    """Write a value as JSON, on several lines if asked."""
    for key in options.ordered():
        if key not in OPTIONS:
            msg = f'operand 2 object contained unknown key "{key}"'
            raise OperandError(msg)
        wanted = TRUE if key == "pretty" else ""
        if options[key].__class__ is not wanted.__class__ or (key == "pretty" and options[key] not in {TRUE, FALSE}):
            kind = "boolean" if key == "pretty" else "string"
            msg = f"operand 2 key {key} failed cast to {kind}"
            raise OperandError(msg)
    pretty = options.get("pretty", TRUE if {"indent", "prefix"} & set(options) else FALSE)
    if pretty is FALSE:
        return json_text(value)
    prefix = options.get("prefix", "")
    return prefix + json_indented(value, prefix, options.get("indent", "\t"))


@builtin("json.unmarshal", STRING)
def json_unmarshal(text: Any) -> Any:
    """Read JSON."""
    return read_json(text)


@builtin("json.is_valid", ANY)
def json_is_valid(text: Any) -> Any:
    """Return whether a text is JSON."""
    return can_be_read(read_json, text)


@builtin("yaml.marshal", ANY)
def yaml_marshal(value: Any) -> Any:
    """Write a value as YAML."""
    return yaml_text.write(value)


def _read_yaml(text: str) -> Any:
    try:
        return from_json(yaml.load(text))
    except (yaml.YamlError, ArithmeticError) as error:  # OPA's reader knows more of YAML than ours
        if str(error).endswith("did not find expected node content"):
            raise BuiltinError(str(error)) from None
        raise NotSupported(str(error)) from None


@builtin("yaml.unmarshal", STRING)
def yaml_unmarshal(text: Any) -> Any:
    """Read YAML."""
    return _read_yaml(text)


@builtin("yaml.is_valid", ANY)
def yaml_is_valid(text: Any) -> Any:
    """Return whether a text is YAML."""
    return can_be_read(_read_yaml, text)
