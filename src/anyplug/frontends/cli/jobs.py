"""`jobs`: the runs of asynchronous tools."""

import time

from anyplug.call.job_store import Job, JobNotFound, Jobs
from anyplug.formats import registry
from anyplug.frontends.cli import render
from anyplug.frontends.cli.call import report
from anyplug.frontends.cli.cli_run import Session
from anyplug.frontends.cli.parsing import Command, Parser
from anyplug.frontends.json_output import job_shape
from anyplug.model.errors import UsageError
from anyplug.model.result_shape import result_shape


def _jobs(parser: Parser) -> Command:
    parser.add_argument("id", nargs="?", metavar="ID", help="show this job and its result")
    parser.add_argument("--cancel", action="store_true", help="cancel the job")
    return jobs


COMMANDS = {"jobs": _jobs}


def jobs(session: Session) -> int:
    """List jobs, show one, or cancel it."""
    options, kept = session.options, Jobs(session.catalog.store)
    if options.cancel and not options.id:
        raise UsageError("--cancel needs the ID of a job", "`anyplug jobs` lists them")
    if options.id:
        try:
            job = kept.one(options.id)
        except JobNotFound:
            if not session.is_in_fleet:
                raise
            return _in_fleet(session)
        if job.state == "lost" and session.is_in_fleet:
            return _in_fleet(session)
        if options.cancel:
            return _cancel(session, kept, job)
        _show(session, job)
        return 0
    found = kept.all()
    if options.json:
        session.print_json([job_shape(job) for job in found])
    elif found:
        rows = [(job.id, job.state, _time(job), job.tool, job.progress) for job in found]
        render.table(("ID", "STATE", "STARTED", "TOOL", "LAST REPORT"), rows)
    else:
        render.out("No jobs.")
    return 0


def _in_fleet(session: Session) -> int:
    """Show or cancel a job that another host of the fleet ordered, or one that has ended. Raises JobNotFound."""
    options = session.options
    given = {"id": options.id, "wait_s": 0, "cancel": options.cancel}
    result = session.with_host(lambda host: host.call(registry.JOB, given))
    about = result.metadata
    if result.error is not None and result.error.code == JobNotFound.code:
        raise JobNotFound(options.id)
    if "state" not in about:  # it cannot be had, or was cancelled before it ran
        return report(session, result)
    ended = about["state"] != "running"
    job = Job(
        id=options.id,
        tool=about["tool"],
        state=about["state"],
        started=about["started"],
        result=result_shape(result) if ended else None,
    )
    _show(session, job)
    return 0


def _cancel(session: Session, kept: Jobs, job: Job) -> int:
    if job.state != "running":
        raise UsageError(f"job {job.id} is not running: it is {job.state}", f"`anyplug jobs {job.id}` shows its result")
    kept.ask_to_cancel(job.id)
    if session.options.json:
        session.print_json(job_shape(job))
    else:
        render.out(f"job {job.id} is being cancelled")
    return 0


def _show(session: Session, job: Job) -> None:
    if session.options.json:
        session.print_json(job_shape(job))
        return
    text = job.result["text"] if job.result else ""
    render.fields(
        [
            ("job", job.id),
            ("tool", job.tool),
            ("plugin", job.plugin),
            ("state", job.state),
            ("started", _time(job)),
            ("reports", job.progress),
            ("result", text),
        ]
    )


def _time(job: Job) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started))
