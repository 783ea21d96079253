"""`export`: package a plugin as a bundle for other programs."""

from anyplug.frontends.cli import render
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.manage import bundle_export as bundles
from anyplug.secrets.redaction import Redaction


def _export(parser: Parser) -> Command:
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, or its folder")
    parser.add_argument(
        "--to",
        required=True,
        choices=bundles.KINDS,
        metavar="KIND",
        help=f"the kind of bundle: {', '.join(bundles.KINDS)}",
    )
    parser.add_argument(
        "--output", metavar="PATH", help="the file or folder to write; a path that ends in .zip is always one file"
    )
    parser.add_argument("--author", default="", metavar="NAME", help="the author that the bundle names")
    return export


COMMANDS = {"export": _export}


def export(session: Session) -> int:
    """Write the bundle and report its contents."""
    options = session.options
    entry = session.plugin(options.name)
    if entry.plugin.stays_up:
        session.running_snapshot()  # only a running plugin reports what it offers
        entry = session.plugin(options.name)
    secrecy = Redaction(entry.plugin, entry.standing.granted, session.catalog.secrets)
    secrecy.look()
    made = bundles.bundle(
        entry.plugin,
        {session.snapshot.model_names[tool.name]: tool.description for tool in entry.tools},
        options.to,
        digest_value=entry.standing.digest,
        author=options.author,
        hide=secrecy.data,
    )
    path = options.output or made.file_name
    bundles.write(made, path)
    if options.json:
        session.print_json(
            {
                "name": made.name,
                "version": made.version,
                "kind": made.kind,
                "path": path,
                "files": list(made.files),
                "left_out": list(made.left_out),
            }
        )
        return 0
    render.out(f"{entry.name} is written to {path}: {render.count(len(made.files), 'file')}")
    for relative in made.left_out:
        session.note(f"left out: {relative}")
    if entry.plugin.stays_up and not entry.tools:
        session.note("note: its tools are not listed, because it has not run yet")
    session.note(
        "note: where it is installed, it needs `anyplug` on the PATH; approval is up to the program that installs it"
    )
    return 0
