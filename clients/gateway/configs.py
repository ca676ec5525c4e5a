"""Writes what the clients are tested with: `configs.py FOLDER` makes upstream.toml for the simulator, and
`configs.py FOLDER UPSTREAM_URL` keywheel.toml for the gateway in front of it, and degraded.toml for one that answers in
the provider's place.

Every client has projects and failing models of its own: what one spends or breaks, another does not miss, and they can
run at the same time. The tokens and keys are made up.
"""

import hashlib
import pathlib
import sys

CLIENTS = ["genai-python", "genai-js", "openai-python", "openai-js", "litellm", "langchain", "docs"]

# What each of a client's projects may do.
PROJECTS = {
    # Everything that the tests ask for.
    "free": "tokens_per_day = 10_000_000",
    # One request a minute.
    "minute": "tokens_per_day = 10_000_000\nrequests_per_minute = 1",
    # One call a day.
    "spent": "calls_per_day = 1",
    # Less than one call needs.
    "small": "tokens_per_day = 100",
    # One model of several.
    "choosy": 'tokens_per_day = 10_000_000\nmodels = ["gemini-3.5-flash-lite"]',
}

# What goes wrong with each of a client's failing models, always.
FAULTS = {
    "down": "overloaded",  # 503
    "cut": "cut",  # streams end without saying why
    "broken": "broken",  # the connection breaks in the middle
    "midway": "error_midway",  # an error after some text
}

UPSTREAM = """\
# Made by clients/gateway/configs.py.
gzip = true
chunk_pause_ms = 1

[models."gemini-3.5-flash-lite"]
free = {}

# One request a day.
[models."gemini-3.8-flash"]
free = { rpd = 1 }

[models."gemini-embedding-001"]
embeds = true
dimensions = 3072
free = {}
"""

MODEL = """
[models."gemini-{fault}-{client}"]
free = {{}}
faults = {{ {rate} = 1.0 }}
"""

KEYS = """
[[projects]]
name = "alpha"
keys = ["AQ.EXAMPLE-gateway-1", "AQ.EXAMPLE-gateway-2"]

[[projects]]
name = "beta"
keys = ["AQ.EXAMPLE-gateway-3"]
"""

GATEWAY = """\
# Made by clients/gateway/configs.py.
listen = "127.0.0.1:0"
state = "{name}-pool.json"

[upstream]
base_url = "{upstream}"

[ledger]
path = "{name}-ledger.db"

[allowance]
tokens = 1_000_000_000
period = "month"

# No test waits long.
[queue]
wait = "1s"

[[key]]
key = "AQ.EXAMPLE-gateway-1"
project = "alpha"

[[key]]
key = "AQ.EXAMPLE-gateway-2"
project = "alpha"

[[key]]
key = "AQ.EXAMPLE-gateway-3"
project = "beta"
"""

PROJECT = """
[projects.{client}-{name}]
token_sha256 = "{hash}"
{rules}
"""


DEGRADED = """
[degraded]
text = "The assistant is resting until {next_available_at}."
"""


def token(client, project):
    return f"EXAMPLE-token-of-{client}-{project}"


def upstream():
    models = (
        MODEL.format(fault=fault, rate=rate, client=client)
        for client in CLIENTS
        for fault, rate in FAULTS.items()
    )
    return UPSTREAM + "".join(models) + KEYS


def gateway(name, upstream_url):
    def project(client, name, rules):
        hashed = hashlib.sha256(token(client, name).encode()).hexdigest()
        return PROJECT.format(client=client, name=name, hash=hashed, rules=rules)

    projects = (project(client, *of) for client in CLIENTS for of in PROJECTS.items())
    return GATEWAY.format(name=name, upstream=upstream_url) + "".join(projects)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    if len(sys.argv) == 2:
        (folder / "upstream.toml").write_text(upstream())
    else:
        url = sys.argv[2]
        (folder / "keywheel.toml").write_text(gateway("keywheel", url))
        (folder / "degraded.toml").write_text(gateway("degraded", url) + DEGRADED)
