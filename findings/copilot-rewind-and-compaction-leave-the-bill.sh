#!/usr/bin/env bash
# GitHub Copilot CLI 1.0.102 (npm, linux-x64): a rewind takes paid calls out of a session's usage, and the call that writes
# the summary of a compaction never gets in.
#
# Behaviour seen: against a model on loopback, a session asks twice, rewinds the second prompt, asks again, and compacts. The
# model answers 4 requests of 1000 input and 20 output tokens each. `session.shutdown` in `events.jsonl`, which the program
# shows as the usage of the session and from which ccusage 20 reads its bill, reports 2 requests, 2000 and 40 tokens: the rows
# of the rewound call are deleted with its `session.usage_record`, and the compaction's call is a row of its own kind alone.
# Whoever adds up what an agent cost from these totals pays for more than is reported, and the more, the more was rewound.
#
# Needs Node.js 20 with npm, Python 3 and a registry. Exits 1 if the behaviour is another one.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"; mkdir home project
npm install --silent --no-fund --no-audit @github/copilot@1.0.102 >npm.log 2>&1 || { cat npm.log; exit 2; }
program=$work/node_modules/@github/copilot-linux-x64/copilot
[ -x "$program" ] || { echo "the program is there for linux-x64 only"; exit 2; }
run() { env -i PATH="$PATH" HOME="$work/home" LANG=C.UTF-8 COPILOT_OFFLINE=true \
    COPILOT_PROVIDER_API_KEY=none COPILOT_MODEL=made-up "$@"; }
run COPILOT_PROVIDER_BASE_URL=http://127.0.0.1:9/v1 timeout 60 "$program" sessions --help >/dev/null 2>&1 || true # unpacks the SDK
sdk=$(find home/.cache -path '*copilot-sdk/index.js' | head -1)
[ -n "$sdk" ] || { echo "the program unpacked no SDK"; exit 2; }
cat >drive.mjs <<'JS'
import { createServer } from "node:http";
const [sdk, path] = process.argv.slice(2);
const { CopilotClient, RuntimeConnection, approveAll } = await import(sdk);
let answered = 0;
const usage = { prompt_tokens: 1000, completion_tokens: 20, total_tokens: 1020 };
const server = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  answered += 1;
  const message = { role: "assistant", content: `Answer ${answered}.` };
  const head = { id: `chatcmpl-${answered}`, created: 1, model: "made-up", usage };
  const whole = { ...head, object: "chat.completion", choices: [{ index: 0, message, finish_reason: "stop" }] };
  const chunk = { ...head, object: "chat.completion.chunk", choices: [{ index: 0, delta: message, finish_reason: "stop" }] };
  const isStream = JSON.parse(body).stream === true;
  response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
  response.end(isStream ? `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n` : JSON.stringify(whole));
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
process.env.COPILOT_PROVIDER_BASE_URL = `http://127.0.0.1:${server.address().port}/v1`;
const provider = { type: "openai", baseUrl: process.env.COPILOT_PROVIDER_BASE_URL, apiKey: "none" };
const client = new CopilotClient({ connection: RuntimeConnection.forStdio({ path }) });
await client.start();
const options = { provider, model: "made-up", workingDirectory: process.cwd(), enableFileChangeTracking: true };
const session = await client.createSession({ onPermissionRequest: approveAll, ...options });
await session.sendAndWait({ prompt: "One." }, 30000);
await session.sendAndWait({ prompt: "Two." }, 30000);
const { points } = await session.rpc.history.listRewindPoints();
await session.rpc.history.rewind({ eventId: points.at(-1).eventId, mode: "conversation" });
await session.sendAndWait({ prompt: "Three." }, 30000);
await session.rpc.history.compact({});
await session.disconnect();
await client.stop();
console.log(answered);
process.exit(0);
JS
answered=$(cd project && run timeout 120 node ../drive.mjs "$work/$sdk" "$program" | tail -1)
told=$(python3 - home/.copilot/session-state/*/events.jsonl <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
(metrics,) = next(row for row in reversed(rows) if row["type"] == "session.shutdown")["data"]["modelMetrics"].values()
print(metrics["requests"]["count"], metrics["usage"]["inputTokens"], metrics["usage"]["outputTokens"])
PY
)
echo "Copilot CLI 1.0.102: the model answered $answered requests of 1000 and 20 tokens (seen: 4);"
echo "the session's totals are: requests, input, output: $told (seen: 2 2000 40; paid: 4 4000 80)"
[ "$answered" = 4 ] && [ "$told" = "2 2000 40" ]
