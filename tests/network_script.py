"""Lets a real plugin of each format go to hosts, through its own host: `python network_script.py CASES` prints JSON.

A case is {"format", "granted"}; the answer has what each way came to, what the audit says held the call, and the
plugin's log. There is a web site on this machine's loopback, with TLS and without. Runs as whoever runs it.
"""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio

import escape_script
import plugin_folders

# Put beside each plugin, in place of what tries to escape.
TRIES = """
import json, os, socket, ssl, subprocess, sys, urllib.error, urllib.request

def fetched(url, facts):
    trusting = ssl.create_default_context(cafile=os.path.join(os.path.dirname(os.path.abspath(__file__)), "site.pem"))
    with urllib.request.urlopen(url, timeout=20, context=trusting) as answer:
        return answer.read().decode()

def curl(url):
    done = subprocess.run(["curl", "-sS", "--max-time", "20", url], capture_output=True, text=True)
    return done.stdout + done.stderr

def sent():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as away:
        return away.sendto(b"x", ("127.0.0.1", 53))

def connected(family, where):
    with socket.socket(family) as away:
        away.settimeout(20)
        away.connect(where)
        return "connected"

def tried(facts):
    site, secure, other = facts["site"], facts["secure"], facts["other_port"]
    ways = {
        "plain": lambda: fetched(f"http://127.0.0.1:{site}/", facts),
        "plain, by name": lambda: fetched(f"http://LOCALHOST.:{site}/", facts),
        "TLS": lambda: fetched(f"https://127.0.0.1:{secure}/", facts),
        "TLS, by name": lambda: fetched(f"https://localhost:{secure}/", facts),
        "curl": lambda: curl(f"http://127.0.0.1:{site}/"),
        "another port": lambda: fetched(f"http://127.0.0.1:{other}/", facts),
        "another host": lambda: fetched("https://example.org/", facts),
        "another name of this machine": lambda: fetched(f"http://{facts['name']}:{site}/", facts),
        "past the proxy": lambda: connected(socket.AF_INET, ("127.0.0.1", site)),
        "past the proxy, elsewhere": lambda: connected(socket.AF_INET, ("192.0.2.1", 80)),
        "over IPv6": lambda: connected(socket.AF_INET6, ("::1", site)),
        "UDP": sent,
        "a name": lambda: socket.getaddrinfo("example.org", 80),
        "a socket with a path": lambda: connected(socket.AF_UNIX, facts["unix"]),
        "an abstract socket": lambda: connected(socket.AF_UNIX, "\\0" + facts["abstract"]),
        "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        "the user's proxies": lambda: [name for name, value in os.environ.items() if "corp.example" in value],
    }
    found = {}
    for name, way in ways.items():
        try:
            found[name] = str(way())
        except urllib.error.HTTPError as error:
            found[name] = f"{error.code} {error.read().decode()}"
        except OSError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found

if __name__ == "__main__":
    json.dump(tried(json.load(sys.stdin)), sys.stdout)
"""
IN_NODE = """
const { execFileSync } = require('node:child_process');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const tls = require('node:tls');

function tunnelled(host, port) {
  const proxy = new URL(process.env.HTTPS_PROXY);
  return new Promise((resolve, reject) => {
    const asked = http.request({ host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${host}:${port}` });
    asked.on('error', reject);
    asked.on('connect', (answer, socket) => {
      socket.destroy();
      resolve(`${answer.statusCode} ${answer.statusMessage}`);
    });
    asked.end();
  });
}

async function run(facts) {
  const said = execFileSync('python3', [path.join(__dirname, 'tries.py')], { input: JSON.stringify(facts) });
  const found = JSON.parse(said);
  const ways = {
    'plain, in Node': async () => (await fetch(`http://127.0.0.1:${facts.site}/`)).text(),
    'another port, in Node': async () => (await fetch(`http://127.0.0.1:${facts.other_port}/`)).status,
    'a tunnel, in Node': () => tunnelled('127.0.0.1', facts.site),
    'another tunnel, in Node': () => tunnelled('example.org', 443),
    'past the proxy, in Node': () => new Promise((resolve, reject) => {
      net.connect(facts.site, '127.0.0.1', () => resolve('connected')).on('error', reject);
    }),
  };
  for (const [name, way] of Object.entries(ways)) {
    try {
      found[name] = String(await way());
    } catch (error) {
      found[name] = `error: ${error.message} ${error.cause && error.cause.code}`;
    }
  }
  return { content: JSON.stringify(found) };
}

module.exports.register = (api) => api.registerTool({ name: 'escape.all', description: 'Tries it.', run });
"""


class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"hello {self.headers['Host'].partition(':')[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def site(certificate: str = "") -> Iterator[int]:
    """Serve a web site on loopback, with TLS if there is a certificate; give its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate + ".key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def make_certificate(path: str) -> str:
    """Write a certificate for loopback, signed by itself, with its key beside it."""
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    more = ["-days", "2", "-subj", "/CN=localhost", "-addext", names, "-keyout", path + ".key", "-out", path]
    subprocess.run([*command, *more], check=True, capture_output=True)
    return path


async def reach(case: dict[str, Any]) -> dict[str, Any]:
    """Let one plugin go everywhere, in a scene of its own."""
    from anyplug import Host  # after the path is set, by whoever starts this
    from anyplug.call.consent import Attachment
    from anyplug.runtime.sandbox import escape_test

    with ExitStack() as stack:
        scene = stack.enter_context(escape_test.scene())
        home = scene.place.home
        os.unlink(scene.facts["store"])  # the host makes a real one
        root = os.path.join(home, "plugins")
        tool, _ = escape_script.write(case["format"], root, escape_test.PROBE, TRIES, IN_NODE)
        plugin_folders.write(os.path.join(home, "settings.toml"), escape_script.FORMATS)
        certificate = make_certificate(os.path.join(root, escape_script.NAME, "site.pem"))
        facts = {
            **scene.facts,
            "site": stack.enter_context(site()),
            "secure": stack.enter_context(site(certificate)),
            "name": os.uname().nodename,
        }
        os.chdir(scene.place.user)
        stack.callback(os.chdir, "/")
        os.environ.update(
            HOME=scene.place.user, ANYPLUG_HOME=home, HTTPS_PROXY="http://corp.example:3128", no_proxy="corp.example"
        )
        granted = tuple(grant.format(**facts) for grant in case["granted"])
        async with Host(roots=[root], watch=False) as host:
            plugin = host.snapshot.plugin(escape_script.NAME).plugin
            await host.approve(plugin, granted=granted, always=True)
            arguments = {"facts": facts} if case["format"] == "stavrobot" else facts
            result = await host.call(tool, arguments, attachment=Attachment(yes=True))
            (item,) = host.audit.calls()
        held_by = item.record.held_by
        with open(os.path.join(home, "logs", f"{escape_script.NAME}.log"), encoding="utf-8") as file:
            log = file.read()
        return {
            "facts": facts,
            "tried": json.loads(result.text) if not result.is_error else result.text,
            "layers": held_by.layers if held_by else None,
            "hosts": held_by.hosts if held_by else None,
            "log": log,
        }


async def main() -> None:
    print(json.dumps([await reach(case) for case in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    anyio.run(main)
