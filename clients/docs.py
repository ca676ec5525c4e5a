"""Runs every command and program of docs/clients.md as it stands: `docs.py DOCUMENT GATEWAY_URL FOLDER`.

The commands that ran are added to FOLDER/ran, one a line.

`sh` blocks run in order, and what they export lasts; `python` and `js` blocks are programs, run with what is installed;
`json` blocks behind a line that names a file under the home folder in backquotes are written there. Each program has to
end well and to say something, and the gateway has to have answered it. There is no other kind of block, and none is left
out: what cannot be run is no block but a row of a table.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.request

DOCUMENT, URL = sys.argv[1:3]
FOLDER = pathlib.Path(sys.argv[3]).resolve()
HOME = FOLDER / "home"
JS = pathlib.Path("target/client-js").resolve()
PYTHON = pathlib.Path("target/client-venv/bin").resolve()
# Those that want other versions than the rest, by heading.
APART = {
    "LlamaIndex": pathlib.Path("target/client-llamaindex/bin").resolve(),
    "Aider": pathlib.Path("target/client-aider/bin").resolve(),
}
# It asks nothing, and keeps to its folder.
ALONE = {
    "AIDER_ANALYTICS_DISABLE": "true",
    "AIDER_CHECK_UPDATE": "false",
    "AIDER_GIT": "false",
    "AIDER_SHOW_MODEL_WARNINGS": "false",
    "AIDER_SHOW_RELEASE_NOTES": "false",
}
BLOCK = re.compile(r"^(?P<before>[^\n]*)\n+```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def main():
    document = pathlib.Path(DOCUMENT).read_text()
    env = {**os.environ, **ALONE, "HOME": str(HOME), "PYTHONDONTWRITEBYTECODE": "1"}
    others = f"{PYTHON}:{JS}/node_modules/.bin:{env['PATH']}"
    HOME.mkdir(parents=True, exist_ok=True)
    passed = failed = blocks = 0
    for block in BLOCK.finditer(document):
        before, language, text = block["before"], block["language"], block["text"]
        line = document[: block.start("text")].count("\n") + 1
        topic = heading(document[: block.start("text")])
        name = f"{DOCUMENT}: {topic}, {language}"
        blocks += 1
        if language == "json" and write(before, text):
            continue
        if language not in RUN:
            failed += 1
            print(f"FAILED {name} (line {line}): nobody knows how to run this\n{text}")
            continue
        env["PATH"] = f"{APART[topic]}:{others}" if topic in APART else others
        answers = answered()
        done = RUN[language](text, env)
        only_exports = language == "sh" and all(
            it.startswith(("export ", "#")) for it in text.splitlines()
        )
        fault = fault_of(done, only_exports, answered() - answers)
        if fault:
            failed += 1
            print(f"FAILED {name} (line {line}): {fault}\n{text}{done.stdout}{done.stderr}")
        else:
            passed += 1
            if language == "sh":
                note(text)
            said = (done.stdout.strip().splitlines() or [""])[-1]
            print(f"ok     {name}: {said[:60]}", flush=True)
    fences = len(re.findall(r"^ *(```|~~~)", document, re.M))
    if fences != 2 * blocks:
        failed += 1
        print(f"FAILED {DOCUMENT}: {fences} fences, but {blocks} blocks were found")
    print(f"{DOCUMENT}: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def fault_of(done, only_exports, answers):
    if done.returncode != 0:
        return f"ended with {done.returncode}"
    if only_exports:
        return None
    if not done.stdout.strip():
        return "said nothing"
    return None if answers else "the gateway answered nothing"


def heading(text):
    return re.findall(r"^#+ (.*)$", text, re.M)[-1]


def shell(text, env):
    """Runs a block, and keeps what it exports in `env`."""
    kept = FOLDER / "env"
    script = f"{text}\nenv -0 >'{kept}'"
    # Outside of any repository: some of the programs write into the one that they are started in.
    with tempfile.TemporaryDirectory() as folder:
        done = ran(["bash", "-euo", "pipefail", "-c", script], env, folder)
    if done.returncode == 0:
        pairs = kept.read_bytes().decode().split("\0")[:-1]
        env.update(pair.split("=", 1) for pair in pairs)
    return done


def note(text):
    """Continued lines are one command: the form in which scripts/check-docs looks for it."""
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    with (FOLDER / "ran").open("a") as ran_commands:
        ran_commands.writelines(f"{line}\n" for line in lines if line and line[0] != "#")


def python(text, env):
    return ran(["python", "-c", text], env, FOLDER)


def javascript(text, env):
    # Beside the packages: that is where a program looks for them.
    program = JS / "documented.mjs"
    program.write_text(text)
    return ran(["node", program], env, FOLDER)


def ran(command, env, folder):
    try:
        return subprocess.run(
            command,
            env=env,
            cwd=folder,
            timeout=60,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    except subprocess.TimeoutExpired as error:
        told = (str(error.stdout or ""), str(error.stderr or "after a minute"))
        return subprocess.CompletedProcess(command, "no end", *told)


def write(before, text):
    """Whether the line before says where."""
    name = re.search(r"`~/([^`]+)`", before)
    if name is None:
        return False
    path = HOME / name[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


def answered():
    """How many requests the gateway has answered well."""
    head = {"x-goog-api-key": os.environ["KEYWHEEL_TOKEN"]}
    page = urllib.request.Request(f"{URL}/metrics", headers=head)
    with urllib.request.urlopen(page) as reply:
        lines = reply.read().decode().splitlines()
    mine = (line for line in lines if line.startswith("keywheel_requests_total{"))
    return sum(float(line.rsplit(" ", 1)[1]) for line in mine if 'outcome="ok"' in line)


RUN = {"sh": shell, "python": python, "js": javascript}

if __name__ == "__main__":
    main()
