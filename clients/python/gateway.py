"""What holds for every client against the gateway: `tests_of` an adapter, which says how a client is spoken to.

Programs are run as `NAME.py GATEWAY_URL DEGRADED_URL UPSTREAM_URL`; the configurations are of ../gateway/configs.py.
"""

import json
import re
import sys
import urllib.request

from harness import raises, run

MODEL = "gemini-3.5-flash-lite"
EMBEDDER = "gemini-embedding-001"
SPENT = "gemini-3.8-flash"
# What the gateway tries at most for one request.
ATTEMPTS = 3


class Gateway:
    """Where the gateway is, and what it and the simulator behind it have counted."""

    def __init__(self, client):
        self.client = client
        self.url, self.degraded, self.upstream = sys.argv[1:]

    def token(self, project="free"):
        return f"EXAMPLE-token-of-{self.client}-{project}"

    def failing(self, fault):
        """The model of this client that always fails in this way."""
        return f"gemini-{fault}-{self.client}"

    def requests(self, project, outcome):
        """How many of the project's requests ended so."""
        name = f'project="{self.client}-{project}"'
        head = {"x-goog-api-key": self.token()}
        page = urllib.request.Request(f"{self.url}/metrics", headers=head)
        with urllib.request.urlopen(page) as reply:
            lines = reply.read().decode().splitlines()
        mine = (line for line in lines if line.startswith("keywheel_requests_total{"))
        mine = (line for line in mine if name in line and f'outcome="{outcome}"' in line)
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in mine)

    def sent_on(self, model):
        """How many requests for the model arrived upstream."""
        with urllib.request.urlopen(f"{self.upstream}/stats") as reply:
            buckets = json.load(reply)["buckets"]
        ends = ("served", "refused", "faulted", "rejected")
        return sum(of[end] for of in buckets if of["model"] == model for end in ends)


class Adapter:
    """One client. `kinds` names its exception for each status; what it cannot do stays None."""

    name: str
    gateway: Gateway
    kinds: dict
    # Off while a test wants to see a refusal that the client would wait for.
    retries = True
    # How many requests it makes for one that is refused with 429, and for one that the provider fails.
    attempts_at_refusal = 1
    attempts_at_failure = 1
    # What it raises when a stream ends early.
    broken: type | tuple = Exception

    count_tokens = None
    list_models = None

    def generate(self, text, model=MODEL, project="free", path="", token=None):
        """The answer's text. `path` is put behind the gateway's address."""
        raise NotImplementedError

    def says(self, error):
        """All that an exception of its tells."""
        return str(error)

    def stream(self, text, model=MODEL):
        """The answer's texts as they come."""
        raise NotImplementedError

    def embed(self, texts):
        """The texts' vectors."""
        raise NotImplementedError


def tests_of(it):
    gateway = it.gateway

    def generates_a_text():
        answer = it.generate("Say hello")
        assert re.match("Simulated answer .* to: Say hello$", answer), answer

    def streams_the_same_text():
        whole = it.generate("Say hello")
        chunks = list(it.stream("Say hello"))
        assert len(chunks) > 2, chunks
        assert "".join(chunks) == whole, (chunks, whole)

    def embeds_one_and_many():
        (one,) = it.embed(["two"])
        many = it.embed(["one", "two"])
        assert len(one) == 3072 and len(many) == 2, (len(one), len(many))
        assert all(abs(a - b) < 1e-6 for a, b in zip(one, many[1]))
        assert one != many[0]

    def counts_tokens():
        assert it.count_tokens("Say hello") == 3

    def lists_models():
        names = {name.removeprefix("models/") for name in it.list_models()}
        assert {MODEL, EMBEDDER, gateway.failing("cut")} <= names, names

    def refused(status, reason, ask, project=None):
        """`ask` raises the exception for `status`, which says why. A project's requests are counted: as many as the
        client cannot be kept from, and each refused by the gateway."""
        before = gateway.requests(project, reason)
        error = raises(it.kinds[status], ask)
        assert reason.upper() in it.says(error).upper(), it.says(error)
        made = gateway.requests(project, reason) - before
        wanted = it.attempts_at_refusal if status == 429 else 1
        assert project is None or made == wanted, f"{made} requests"

    def is_refused_without_a_known_token():
        ask = lambda: it.generate("Hello", token="EXAMPLE-stranger-token")
        refused(401, "unknown_token", ask)

    def is_refused_a_project_that_is_not_its_own():
        refused(404, "unknown_project", lambda: it.generate("Hello", path="/p/docs-free"))

    def reaches_its_project_by_path():
        assert it.generate("Say hello", path=f"/p/{gateway.client}-free")

    def is_refused_a_model_that_the_project_may_not_use():
        ask = lambda: it.generate("Hello", model=SPENT, project="choosy")
        refused(403, "model_not_allowed", ask, "choosy")

    def is_refused_what_the_whole_budget_cannot_pay():
        ask = lambda: it.generate("Hello", project="small")
        refused(400, "never_fits", ask, "small")

    def is_refused_over_requests_per_minute():
        # This one is worth a retry, and those who heed Retry-After wait for it: for most of a minute.
        it.retries = False
        ask = lambda: it.generate("Hello", project="minute")
        ask()
        refused(429, "requests_per_minute", ask, "minute")
        it.retries = True

    def is_refused_over_its_budget():
        ask = lambda: it.generate("Hello", project="spent")
        ask()
        refused(429, "over_budget", ask, "spent")
        assert gateway.requests("spent", "ok") == 1

    def is_told_when_no_key_can_serve():
        def ask():
            # One of the clients gets the day's only answer of each quota project.
            for _ in range(3):
                it.generate("Hello", model=SPENT)

        refused(503, "exhausted", ask)

    def is_answered_in_the_providers_place():
        ours, gateway.url = gateway.url, gateway.degraded
        try:
            # The day's answers are spent, or are now.
            answers = [it.generate("Hello", model=SPENT) for _ in range(3)]
            streamed = "".join(it.stream("Hello", model=SPENT))
        finally:
            gateway.url = ours
        for answer in (answers[-1], streamed):
            assert answer.startswith("The assistant is resting until 20"), answer

    def gets_the_providers_own_refusal():
        raises(it.kinds[404], lambda: it.generate("Hello", model="gemini-1.0"))

    def does_not_multiply_requests_to_a_failing_provider():
        model = gateway.failing("down")
        raises(it.kinds[503], lambda: it.generate("Hello", model=model))
        made, sent = gateway.requests("free", "upstream_down"), gateway.sent_on(model)
        print(f"       {it.name}: {made} requests became {sent} upstream", flush=True)
        assert made == it.attempts_at_failure, f"{made} requests"
        assert 1 <= sent <= ATTEMPTS * it.attempts_at_failure, f"{sent} requests upstream"

    def notices(fault):
        def test():
            said = []

            def read():
                for text in it.stream("Say hello, and then some more", gateway.failing(fault)):
                    said.append(text)

            error = raises(it.broken, read)
            assert "".join(said).startswith("Simulated"), (said, error)
            # Nobody begins again behind a text that was shown.
            assert gateway.sent_on(gateway.failing(fault)) == 1

        test.__name__ = f"notices_a_stream_that_is_{fault}"
        return test

    tests = [generates_a_text, streams_the_same_text, embeds_one_and_many]
    tests += [counts_tokens] if it.count_tokens else []
    tests += [lists_models] if it.list_models else []
    tests += [
        reaches_its_project_by_path,
        is_refused_without_a_known_token,
        is_refused_a_project_that_is_not_its_own,
        is_refused_a_model_that_the_project_may_not_use,
        is_refused_what_the_whole_budget_cannot_pay,
        is_refused_over_requests_per_minute,
        is_refused_over_its_budget,
        is_told_when_no_key_can_serve,
        is_answered_in_the_providers_place,
        gets_the_providers_own_refusal,
        does_not_multiply_requests_to_a_failing_provider,
        notices("cut"),
        notices("broken"),
        notices("midway"),
    ]
    return tests


def main(adapter, more=()):
    """Runs the tests that hold for all, and `more` of its own."""
    sys.exit(1 if run(adapter.name, [*tests_of(adapter), *more]) else 0)
