"""Make the chat history of aider: ``python -m tests.programs.make_aider AIDER FOLDER [NAME]``.

The program runs against a model on loopback, with a home in ``FOLDER``; ``FOLDER/sent.json`` has the messages of its
requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.programs.loopback import Model, Request, Turn
from tests.programs.made import pack

EDIT = """Here is the change, with a line that begins as others do:

> a quotation

# aider chat

#### A heading

a.txt
```
<<<<<<< SEARCH
AAA
=======
BBB
>>>>>>> REPLACE
```
"""


def choose(request: Request) -> Turn:
    """Answer by the last words of a person."""
    text = next(str(message["content"]) for message in request.body["messages"][::-1] if message["role"] != "system")
    if "Swap it." in text:
        return Turn(EDIT, input=2100, cached=0, output=60)
    if "This breaks." in text:
        return Turn("made-up refusal", status=400)
    return Turn("The answer.\n\nIn two paragraphs.", input=1581, cached=0, output=4)


def main(program: Path, folder: Path, name: str | None) -> None:
    folder = folder.absolute()
    (folder / "work").mkdir(parents=True)
    (folder / "work/a.txt").write_text("AAA\n")
    with Model(choose=choose) as model:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "OPENAI_API_KEY": "none"}
        env |= {
            "OPENAI_API_BASE": f"{model.url}/v1",
            "AIDER_ANALYTICS_DISABLE": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

        def run(model_name: str, *words: str) -> None:
            command = [str(program), "--model", model_name, "--no-git", "--no-check-update", "--no-show-release-notes"]
            command += [
                "--no-show-model-warnings", "--yes-always", "--no-detect-urls", "--no-stream", "--edit-format", "diff",
                "a.txt",
            ]  # fmt: skip
            text = "".join(word + "\n" for word in [*words, "/exit"])
            done = subprocess.run(
                command,
                check=False,
                cwd=folder / "work",
                env=env,
                capture_output=True,
                text=True,
                input=text,
                timeout=170,
            )
            print(done.returncode, done.stdout[-300:], done.stderr[-300:])

        run(
            "openai/gpt-4o",
            "A first question.",
            "Swap it.",
            "{one",
            "A question",
            "of two lines.",
            "one}",
            "/ask Why?",
            "/tokens",
        )
        run("openai/made-up", "A question without a price.", "This breaks.", "/clear", "After it.")
        sent = [request.body["messages"] for request in model.requests]
    (folder / "sent.json").write_text(json.dumps([[m for m in messages if m["role"] != "system"] for messages in sent]))
    if name is not None:
        print(pack(folder, name, ["sent.json", "work/.aider.chat.history.md"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
