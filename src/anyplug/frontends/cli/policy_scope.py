"""The policies that a `policy` command is about: those of the surrounding project, and the user's own."""

import os

from anyplug.frontends.cli.cli_run import Session
from anyplug.policy.authoring.project_policies import ProjectPolicies


def policies_of(session: Session, about: str = "") -> ProjectPolicies:
    """Find them, around the file or folder that a command is `about`. Raises ConfigError if there are none."""
    given = session.options
    return ProjectPolicies(
        session.catalog.home.path,
        os.getcwd(),
        about=about,
        harness=given.harness or "",
        policy_dir=given.policy_dir,
        global_config=given.global_config,
        self_protection=session.catalog.settings.policy.self_protection,
    )
