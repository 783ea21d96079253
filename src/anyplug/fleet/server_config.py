"""The configuration of a NATS server for a fleet: one user for each member, with no more rights than its work takes.

JetStream answers to any subject that a request names, also to one that the user may not publish to, and a stream
stores such an answer like any other message. It does so with the rights of the account that has the stream: from there,
an answer also passes that account's imports. So members and observers are in accounts without any stream, and reach the
streams of the others through imports alone; an answer that comes back through an import passes no other one. What the
members' account delivers, they take only if it is sealed or signed.
"""

from collections.abc import Sequence

from anyplug.fleet.credentials import Member
from anyplug.fleet.messages import API, Subjects

DECISIONS = ("approval", "withdrawn", "policy")  # all members hear of them
# Accounts. Only the first two have streams: the admin's, and those of jobs, which have always been in that account.
ADMINS, JOBS, MEMBERS, OBSERVERS = "ADMIN", "FLEET", "MEMBERS", "OBSERVERS"
ACCOUNTS = {"admin": ADMINS, "observer": OBSERVERS}  # by role; all others are members


def server_config(members: Sequence[Member], prefix: str) -> str:
    """Return the configuration. TLS and the other servers of a cluster are added by the one who runs it."""
    subjects = Subjects(prefix)
    users = {
        account: "\n".join(
            _user(member, subjects) for member in members if ACCOUNTS.get(member.role, MEMBERS) == account
        )
        for account in (ADMINS, MEMBERS, OBSERVERS)
    }
    trust = subjects.trust
    reads = [f"{API}.DIRECT.GET.KV_{trust}", f"{API}.STREAM.MSG.GET.KV_{trust}", f"{API}.DIRECT.GET.{subjects.bundles}"]
    reads += [f"{API}.DIRECT.GET.KV_{bucket}" for bucket in (subjects.directory, subjects.tools)]
    reads.append(f"{API}.DIRECT.GET.{subjects.trail}")
    written = {  # by where they are stored: where members write them
        subjects.entry(trust, "lease.*"): subjects.lease("*"),
        subjects.entry(subjects.directory, "*"): subjects.announced("*"),
        subjects.entry(subjects.tools, "*.*"): subjects.described("*", "*"),
        subjects.recorded("*"): subjects.audit("*"),
    }
    decisions = [subjects.entry(trust, f"{name}.*") for name in DECISIONS]
    decisions.append(subjects.entry(trust, "secret.*.*"))
    both = f"{MEMBERS}, {OBSERVERS}"
    exports = [f'{{ service: "{name}", response_type: "Stream", accounts: [{both}] }}' for name in reads]
    exports += [f'{{ service: "{name}", response_type: "Stream", accounts: [{MEMBERS}] }}' for name in written]
    exports += [f'{{ stream: "{name}", accounts: [{both}] }}' for name in decisions]
    seen = [_lent(ADMINS, name, subjects.trust_api) for name in reads]
    seen += [f'{{ stream: {{ account: {ADMINS}, subject: "{name}" }} }}' for name in decisions]
    work = [subjects.entry(subjects.jobs, "*"), subjects.job("*"), f"$JS.ACK.{subjects.queue}.>"]
    work += [f"{API}.STREAM.MSG.GET.KV_{subjects.jobs}", f"{API}.CONSUMER.MSG.NEXT.{subjects.queue}.*"]
    lent = [f'{{ service: "{name}", response_type: "Stream", accounts: [{MEMBERS}] }}' for name in work]
    imports = [
        *seen,
        *(_lent(JOBS, name, subjects.jobs_api) for name in work),
        *(
            f'{{ service: {{ account: {ADMINS}, subject: "{stored}" }}, to: "{subject}" }}'
            for stored, subject in written.items()
        ),
    ]
    here = subjects.here("*")
    seen.append(f'{{ stream: {{ account: {MEMBERS}, subject: "{here}" }} }}')
    whole = f"{API}.>"
    ours = f'{{ service: {{ account: {JOBS}, subject: "{whole}" }}, to: "{subjects.members_api}.>" }}'
    return f"""# Written by `anyplug fleet config`. Reload the server after a change: nats-server --signal reload

jetstream {{}}

accounts {{
  {ADMINS} {{
    jetstream: enabled
    users: [
{users[ADMINS]}
    ]
    exports: [
      {_lines(exports)}
    ]
    imports: [
      {ours}
    ]
  }}
  {JOBS} {{
    jetstream: enabled
    exports: [
      {{ service: "{whole}", response_type: "Stream", accounts: [{ADMINS}] }}
      {_lines(lent)}
    ]
  }}
  {MEMBERS} {{
    users: [
{users[MEMBERS]}
    ]
    exports: [
      {{ stream: "{here}", accounts: [{OBSERVERS}] }}
    ]
    imports: [
      {_lines(imports)}
    ]
  }}
  {OBSERVERS} {{
    users: [
{users[OBSERVERS]}
    ]
    imports: [
      {_lines(seen)}
    ]
  }}
}}
"""


def _lent(account: str, name: str, api: str) -> str:
    """Return the import of a service, whose requests to JetStream begin with `api` here."""
    return f'{{ service: {{ account: {account}, subject: "{name}" }}, to: "{name.replace(API, api, 1)}" }}'


def _lines(entries: Sequence[str]) -> str:
    return "\n      ".join(entries)


def _user(member: Member, subjects: Subjects) -> str:
    publish, subscribe = rights(member, subjects)
    return f"""      # {member.role} {member.name}
      {{ nkey: {member.key}, permissions: {{
        publish: {{ allow: [{_listed(publish)}] }}
        subscribe: {{ allow: [{_listed(subscribe)}] }} }} }}"""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def rights(member: Member, subjects: Subjects) -> tuple[list[str], list[str]]:
    """Return the subjects to which a member may publish, and which it may hear."""
    key = member.key
    inbox = f"_INBOX_{key}.>"
    decisions = [subjects.entry(subjects.trust, f"{name}.*") for name in DECISIONS]
    direct = f"{subjects.trust_api}.DIRECT.GET"
    known = f"{direct}.KV_{subjects.trust}"
    reads = [f"{direct}.KV_{bucket}" for bucket in (subjects.directory, subjects.tools)]
    jobs = [subjects.entry(subjects.jobs, "*"), f"{subjects.jobs_api}.STREAM.MSG.GET.KV_{subjects.jobs}"]
    if member.role == "gateway":
        return [subjects.run("*"), subjects.audit(key), subjects.job("*"), *jobs, *reads, known], [
            subjects.answers(key, ">"),
            subjects.here("*"),
            *decisions,
            inbox,
        ]
    if member.role == "worker":
        publish = [
            f"{subjects.answers('*', key)}.>",
            subjects.here(key),
            subjects.announced(key),
            subjects.described(key, "*"),
            subjects.lease(key),
            *jobs,
            f"{subjects.jobs_api}.CONSUMER.MSG.NEXT.{subjects.queue}.*",
            f"$JS.ACK.{subjects.queue}.>",
            subjects.audit(key),
            known,
            f"{subjects.trust_api}.STREAM.MSG.GET.KV_{subjects.trust}",
            f"{direct}.{subjects.bundles}",
        ]
        return publish, [subjects.run(key), *decisions, subjects.entry(subjects.trust, f"secret.{key}.*"), inbox]
    if member.role == "observer":
        return [*reads, known, f"{direct}.{subjects.trail}"], [subjects.here("*"), *decisions, inbox]
    publish = [f"{API}.>", f"{subjects.members_api}.>", subjects.entry(subjects.trust, ">"), subjects.bundle("*", "*")]
    publish += ["$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>"]  # to back up the decisions, and put them back
    return publish, [*decisions, inbox]
