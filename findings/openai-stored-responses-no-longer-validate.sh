#!/usr/bin/env bash
# openai 3.57.0 (PyPI): a response that openai 2.8.0 parsed and wrote down no longer validates.
#
# Behaviour seen: the JSON that `Response.model_dump_json` of 2.8.0 writes is refused by `Response.model_validate_json` of
# 3.57.0: `usage.input_tokens_details.cache_write_tokens` has become a required field, which no response of before has.
# Within one version the file comes back. A ChatCompletion of 2.8.0 still validates: its new field is optional. Whoever
# stores responses as the library's own JSON, and reads them with its own types, cannot read them after an upgrade.
#
# Needs Python 3 with venv and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
for version in 2.8.0 3.57.0; do
    python3 -m venv "$version"
    "$version/bin/pip" install -q --disable-pip-version-check "openai==$version"
done
cat >write.py <<'PY'
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5}
usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
response = {"id": "resp_1", "object": "response", "created_at": 1770000000, "model": "gpt-5", "output": [], "tools": []}
response |= {"parallel_tool_calls": True, "tool_choice": "auto", "status": "completed", "usage": usage}
choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done"}}
counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 0}}
chat = {"id": "c1", "object": "chat.completion", "created": 1770000000, "model": "gpt-5", "choices": [choice], "usage": counts}
open("response.json", "w").write(Response.model_validate(response).model_dump_json())
open("chat.json", "w").write(ChatCompletion.model_validate(chat).model_dump_json())
PY
cat >read.py <<'PY'
import openai
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import ValidationError

def outcome(kind, file):
    try:
        kind.model_validate_json(open(file).read())
    except ValidationError as error:
        return "refused: " + ", ".join(".".join(map(str, each["loc"])) + " " + each["type"] for each in error.errors())
    return "read"

print(f"openai {openai.__version__}: response {outcome(Response, 'response.json')}; chat {outcome(ChatCompletion, 'chat.json')}")
PY
2.8.0/bin/python write.py
seen=$(2.8.0/bin/python read.py; 3.57.0/bin/python read.py)
printf '%s\n' "$seen"
[ "$seen" = "openai 2.8.0: response read; chat read
openai 3.57.0: response refused: usage.input_tokens_details.cache_write_tokens missing; chat read" ]
