"""OAuth for servers at an address: sign a person in, and keep the tokens with the plugin's secrets.

What is kept belongs to the server's exact address: another address never gets it. Without a person nothing begins: a
running server only uses and renews what it has. Imports the SDK.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from anyplug.model.types import Endpoint, Plugin
from anyplug.model.web_pages import is_web_page
from anyplug.secrets.vault import SIGN_IN, Secrets

NAME_LENGTH = 16  # characters of an address's hash
CLIENT = "anyplug"
AUTHORIZATION = "authorization"
PROOF = "S256"  # the method of PKCE

Redirect = Callable[[str], Awaitable[None]]  # shows a person the page on which to sign in
Await = Callable[[], Awaitable[AuthorizationCodeResult]]  # waits until the person has done so


class _Kept(msgspec.Struct):
    tokens: Any = None
    client: Any = None
    metadata: Any = None  # of the authorization server, to renew tokens at the right place
    expires_at: float = 0.0


class Storage:
    """What is kept for one server of a plugin, as one of its secrets."""

    def __init__(self, secrets: Secrets, plugin: Plugin, url: str) -> None:
        self._secrets = secrets
        self._plugin = plugin
        self.name = SIGN_IN + hashlib.sha256(url.encode()).hexdigest()[:NAME_LENGTH].upper()
        self.kept = _Kept()

    def read(self) -> bool:
        """Read what is kept; return whether somebody is signed in."""
        text = self._secrets.get(self._plugin, self.name)
        try:
            self.kept = msgspec.json.decode(text, type=_Kept) if text else _Kept()
        except msgspec.DecodeError:
            self.kept = _Kept()
        return self.kept.tokens is not None

    def forget(self) -> bool:
        """Forget who is signed in; return whether anybody was."""
        return self._secrets.remove(self._plugin, self.name)

    async def write(self) -> None:
        """Keep it."""
        text = msgspec.json.encode(self.kept).decode()
        await anyio.to_thread.run_sync(partial(self._secrets.set, self._plugin, self.name, text, is_sign_in=True))

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, for the SDK."""
        return OAuthToken.model_validate(self.kept.tokens) if self.kept.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens."""
        self.kept.tokens = tokens.model_dump(mode="json", exclude_none=True)
        self.kept.expires_at = time.time() + tokens.expires_in if tokens.expires_in else 0.0
        await self.write()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return how we are registered, for the SDK."""
        return OAuthClientInformationFull.model_validate(self.kept.client) if self.kept.client else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep how we are registered; it counts once somebody has signed in."""
        self.kept.client = client_info.model_dump(mode="json", exclude_none=True)


class SignIn(OAuthClientProvider):
    """Shows a server who is signed in."""

    def __init__(
        self, url: str, storage: Storage, redirect: Redirect | None, answer: Await | None, redirect_uri: str
    ) -> None:
        metadata = OAuthClientMetadata(
            client_name=CLIENT,
            redirect_uris=[AnyUrl(redirect_uri)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        super().__init__(url, metadata, storage, redirect, answer)
        self._kept_in = storage

    async def _initialize(self) -> None:
        """Restore what the SDK forgets between runs: when the tokens end, and where they are renewed."""
        await super()._initialize()
        kept = self._kept_in.kept
        if kept.expires_at:
            self.context.token_expiry_time = kept.expires_at
        if kept.metadata:
            try:
                self.context.oauth_metadata = OAuthMetadata.model_validate(kept.metadata)
            except ValidationError:
                pass  # then it is discovered again

    async def keep_metadata(self) -> None:
        """Keep where tokens are renewed."""
        if self.context.oauth_metadata is not None:
            self._kept_in.kept.metadata = self.context.oauth_metadata.model_dump(mode="json", exclude_none=True)
            await self._kept_in.write()


class KeptSignIn(SignIn):
    """Uses and renews a sign-in without a person. What a server answers then is not asked about: no step begins one."""

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = super()._auth_flow(request)
        try:
            sent = await anext(flow)
            while sent is not request:
                sent = await flow.asend((yield sent))
            yield request
        finally:
            await flow.aclose()


def stored(secrets: Secrets, plugin: Plugin, endpoint: Endpoint) -> httpx2.Auth | None:
    """Return what shows a server who is signed in; None if nobody is, or its headers already say so."""
    if any(name.lower() == AUTHORIZATION for name in endpoint.headers):
        return None
    storage = Storage(secrets, plugin, endpoint.url)
    if not storage.read():
        return None
    uris = (storage.kept.client or {}).get("redirect_uris") or ["http://127.0.0.1/callback"]
    return KeptSignIn(endpoint.url, storage, None, None, uris[0])


def with_own_query(url: str, metadata: OAuthMetadata | None) -> str:
    """Return the address of the page to sign in on, which the SDK appends to an endpoint as if that had no query."""
    endpoint = str(metadata.authorization_endpoint) if metadata is not None else ""
    return f"{endpoint}&{url.removeprefix(f'{endpoint}?')}" if "?" in endpoint else url


def checked_page(url: str, metadata: OAuthMetadata | None) -> str:
    """Return the state that the page to sign in on must give back; raises OAuthFlowError if it must not be shown."""
    if not is_web_page(url):
        raise OAuthFlowError("the page to sign in on has no plain http or https address")
    if metadata is None or PROOF not in (metadata.code_challenge_methods_supported or []):
        raise OAuthFlowError(f"the authorization server does not declare support for {PROOF}, which MCP requires")
    return parse_qs(urlsplit(url).query).get("state", [""])[-1]
