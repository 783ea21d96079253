"""Printing, randomness, the runtime, and the builtins that are known and refused."""

import random
from typing import Any, Final

from anyplug.rego.builtins.builtin_table import MOST, NUMBER, STRING, TABLE, Builtin, builtin, need_integer, refuse
from anyplug.rego.values.rego_errors import NotSupported
from anyplug.rego.values.values import EMPTY_OBJECT, TRUE

MAX_PRINTED: Final = 1_000  # lines of one evaluation

NETWORK: Final = "policies here do not use the network"
CERTIFICATES: Final = "certificates and keys are not read here"


def _print(context: Any, *values: Any) -> Any:
    """Record what a policy prints; the compiler has converted it to text."""
    if len(context.printed) < MAX_PRINTED:
        context.printed.append(" ".join(values))
    return TRUE


TABLE["print"] = Builtin("print", _print, -1)
TABLE["print"].context = True


@builtin("trace", STRING, context=True)
def trace(context: Any, text: Any) -> Any:
    """Record a text."""
    return _print(context, text)


@builtin("rand.intn", STRING, NUMBER, context=True, impure=True)
def rand_intn(context: Any, key: Any, bound: Any) -> Any:
    """Return a number below a bound: the same for the same key, during one evaluation."""
    limit = abs(need_integer(2, bound))
    if limit > MOST:
        msg = "a bound of more than 63 bits, with which OPA crashes"
        raise NotSupported(msg)
    if not limit:
        return 0
    return context.now.setdefault(f"rand:{key}:{limit}", random.SystemRandom().randrange(limit))


@builtin("opa.runtime", impure=True)
def runtime() -> Any:
    """Return what is known of the program around: nothing."""
    return EMPTY_OBJECT


refuse(NETWORK, "http.send", arity=1)
refuse(NETWORK, "net.lookup_ip_addr", arity=1)
refuse("use io.jwt.verify_* and io.jwt.decode, and compare the claims", "io.jwt.decode_verify", arity=2)
refuse("policies do not sign tokens", "io.jwt.encode_sign", "io.jwt.encode_sign_raw", arity=3)
refuse(
    CERTIFICATES, "crypto.x509.parse_certificates", "crypto.x509.parse_certificate_request",
    "crypto.x509.parse_and_verify_certificates", "crypto.x509.parse_rsa_private_key", "crypto.parse_private_keys",
    arity=1,
)  # fmt: skip
refuse(CERTIFICATES, "crypto.x509.parse_keypair", "crypto.x509.parse_and_verify_certificates_with_options", arity=2)
refuse("GraphQL is not read here", "graphql.parse_query", "graphql.parse_schema", "graphql.schema_is_valid", arity=1)
refuse("GraphQL is not read here", "graphql.parse", "graphql.parse_and_verify", "graphql.is_valid", arity=2)
refuse("requests are not signed here", "providers.aws.sign_req", arity=3)
refuse("policies do not read policies here", "rego.parse_module", arity=2)
refuse("policies do not wait", "test.sleep", arity=1)

# OPA refuses them, too, in the current language.
DEPRECATED: Final = "deprecated: OPA refuses it in Rego v1"
refuse(
    DEPRECATED,
    "all",
    "any",
    *(f"cast_{kind}" for kind in ("array", "boolean", "null", "object", "set", "string")),
    arity=1,
)
refuse(DEPRECATED, "net.cidr_overlap", "re_match", "set_diff", arity=2)
INTERNAL: Final = "OPA's compiler writes it; it is not for policies"
refuse(INTERNAL, "assign", "internal.print", "internal.template_string", "internal.test_case")

for _name in ("rego.metadata.chain", "rego.metadata.rule"):  # rules know theirs before they run; queries have none
    TABLE[_name] = Builtin(_name, lambda: None, 0)
