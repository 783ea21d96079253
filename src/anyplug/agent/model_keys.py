"""Keys of model providers that a person stored with `anyplug secret chat VARIABLE`."""

from anyplug.model.types import Plugin
from anyplug.secrets.vault import Secrets

OWNER = Plugin(name="chat", format="", path="chat")  # no plugin's path: those are absolute


def stored_keys(secrets: Secrets) -> dict[str, str]:
    """Return the stored keys by variable; raises SecretsUnusable."""
    return secrets.values(OWNER)
