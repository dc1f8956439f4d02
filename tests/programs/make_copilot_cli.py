"""Make the sessions of Copilot CLI: ``python -m tests.programs.make_copilot_cli BIN FOLDER [NAME]``.

``BIN`` is the folder of ``copilot`` and of Node 22. The program runs against a model on loopback, with a home in
``FOLDER``, which is new; ``FOLDER/sent.json`` has the messages that it sent.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

PLAIN, EDITED = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
STATE = "home/.copilot/session-state"
DRIVER = """
const [sdk, path, url, id, ...steps] = process.argv.slice(2);
const { CopilotClient, RuntimeConnection, approveAll } = await import(sdk);
const client = new CopilotClient({ connection: RuntimeConnection.forStdio({ path }) });
await client.start();
const provider = { type: "openai", baseUrl: url, apiKey: "made-up" };
const options = { onPermissionRequest: approveAll, workingDirectory: process.cwd(), provider, model: "made-up",
  enableFileChangeTracking: true };
const known = (await client.listSessions()).some((one) => one.sessionId === id);
const session = await (known ? client.resumeSession(id, options) : client.createSession({ sessionId: id, ...options }));
for (const step of steps) {
  const [verb, words] = step.split(":");
  if (verb === "say") await session.sendAndWait({ prompt: words }, 30000);
  if (verb === "compact") await session.rpc.history.compact({});
  if (verb === "name") await session.rpc.name.set({ name: words });
  if (verb === "fork") console.log((await client.rpc.sessions.fork({ sessionId: id, name: words })).sessionId);
  if (verb === "abort") {
    await session.send({ prompt: words });
    await new Promise((done) => setTimeout(done, 1000));
    await session.abort();
  }
  if (verb === "rewind") {
    const { points } = await session.rpc.history.listRewindPoints();
    await session.rpc.history.rewind({ eventId: points.at(-1).eventId, mode: "conversation" });
  }
}
await session.disconnect();
await client.stop();
"""


def choose(request: Request) -> Turn:
    """Answer by the last message."""
    messages = request.body["messages"]
    words = str(messages[-1].get("content"))
    if messages[-1]["role"] == "tool":
        return Turn("The tool answered.", input=2000, cached=1500, output=30)
    if "detailed summary" in words:
        return Turn("The user had files read.", input=3000, cached=0, output=70)
    if "both" in words:
        calls = [("view", {"path": str(Path(sys.argv[2], "work", name))}) for name in ("a.txt", "none.txt")]
        return Turn("Reading both.", calls, "Two files.", input=1200, cached=0, output=40, reasoning=8)
    if "fails" in words:
        return Turn("made-up refusal", status=400)
    if "waits" in words:
        time.sleep(3)
    if "helper" in words:
        mode = "background" if "behind" in words else "sync"
        task = {
            "description": "Look", "prompt": "Look at a.txt", "agent_type": "explore", "name": "looker", "mode": mode,
        }  # fmt: skip
        return Turn("Asking.", [("task", task)], input=1300, cached=100, output=50)
    return Turn(f"Answer to: {words.rpartition(chr(10))[2]}")


class Copilot:
    """The program, its home, and its server."""

    def __init__(self, programs: Path, folder: Path, model: Model) -> None:
        self.programs, self.folder, self.url = programs, folder, f"{model.url}/v1"
        self.env = {
            "PATH": f"{programs}:/usr/bin:/bin", "HOME": f"{folder}/home", "LANG": "C.UTF-8",
            "COPILOT_PROVIDER_BASE_URL": self.url, "COPILOT_PROVIDER_API_KEY": "made-up",
            "COPILOT_MODEL": "made-up", "COPILOT_OFFLINE": "true",
        }  # fmt: skip

    def run(self, *command: str | Path) -> str:
        """Run a command, and return what it printed."""
        done = subprocess.run(
            command,
            check=False,
            cwd=self.folder / "work",
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=120,
        )
        return done.stdout.decode().strip()

    def say(self, words: str, *options: str) -> None:
        """Give the first session a prompt, as the command line does."""
        self.run(self.programs / "copilot", "--allow-all-tools", "-p", words, *options)

    def drive(self, session: str, *steps: str) -> str:
        """Go through steps in a session, as an editor does, and return the id of the last fork."""
        (sdk,) = (self.folder / "home/.cache/copilot/pkg").glob("*/*/copilot-sdk/index.js")
        driver = self.folder / "driver.mjs"
        driver.write_text(DRIVER)
        program = next((self.programs.parent / "@github").glob("copilot-*/copilot"))
        return self.run(self.programs / "node", driver, sdk, program, self.url, session, *steps)


def make(programs: Path, folder: Path) -> None:
    """Make the sessions."""
    (folder / "home").mkdir(parents=True)
    (folder / "work").mkdir()
    (folder / "work/a.txt").write_text("AAA\n")
    with Model(choose=choose) as model:
        copilot = Copilot(programs, folder, model)
        copilot.say("Read both files.", "--session-id", PLAIN)
        for words in ("And now?", "This fails.", "Ask a helper.", "Ask a helper behind.", "/compact", "At the end."):
            copilot.say(words, "--resume", PLAIN)
        copilot.drive(EDITED, "say:One.", "say:Two.")
        shutil.copy(folder / STATE / EDITED / "events.jsonl", folder / "before.jsonl")
        first = copilot.drive(EDITED, "rewind", "say:Three.", "name:A name", "fork:Fork")
        copilot.drive(first, "say:In the fork.")
        copilot.drive(EDITED, "abort:This waits.", "say:Four.", "compact", "say:Five.", "compact", "say:Six.")
    sent = [[message for message in one.body["messages"] if message["role"] != "system"] for one in model.requests]
    (folder / "sent.json").write_text(json.dumps({"fork": first, "sent": sent}))
    for path in (folder / "before.jsonl", *(folder / STATE).glob("*/events.jsonl")):
        rows = [_cut(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the prompts, tools and flags of the program."""
    data = row["data"]
    for name in ("requestMessages", "requestSettings", "messages", "modelInfo", "contentBlocks", "tools"):
        data.pop(name, None)
    if row["type"] == "system.message":
        data["content"] = "(cut)"
    return row


if __name__ == "__main__":
    place = Path(sys.argv[2]).absolute()
    make(Path(sys.argv[1]).absolute(), place)
    if len(sys.argv) > 3:
        patterns = [f"{STATE}/*/events.jsonl", f"{STATE}/*/workspace.yaml", "before.jsonl", "sent.json"]
        print(pack(place, sys.argv[3], patterns))
