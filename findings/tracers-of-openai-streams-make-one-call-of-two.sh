#!/usr/bin/env bash
# @langfuse/openai 5.11.1, langsmith 0.12.0 and @arizeai/openinference-instrumentation-openai 4.2.7 (npm), with openai 6.49.0:
# of a stream, two calls of tools are recorded as one that was never made.
#
# Behaviour seen, with the official client of Chat Completions and an answer that says a sentence and calls `read` with a and
# `delete` with b: (1) not streamed, all three record it as it was. (2) Streamed, the pieces of all calls are put together, since
# none looks at the `index` by which a piece tells its call. With Langfuse it is a call of `delete`, the last name, with
# `{"path": "a"}{"path": "b"}`, without an id; the sentence is dropped. With LangSmith and OpenInference the tool's name is
# `readdelete`, with the same arguments; LangSmith has the first id, OpenInference the id `call_1call_2`. (3) OpenInference
# records no token of a stream, though the provider was asked for the counts (`include_usage`) and sent them: it skips the piece
# that has them, as it has no choice. (4) A stream that the client leaves before its end, as a user's "stop" does, is nothing at
# all with Langfuse: its span is never ended, nor sent.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @langfuse/openai@5.11.1 @langfuse/tracing@5.11.1 openai@6.49.0 langsmith@0.12.0 \
    @arizeai/openinference-instrumentation-openai@4.2.7 @opentelemetry/api@1.9.1 @opentelemetry/sdk-trace-node@2.12.1 \
    >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >spans.mjs <<'JS'
import { setTimeout as sleep } from "node:timers/promises";
import { OpenAIInstrumentation } from "@arizeai/openinference-instrumentation-openai";
import { observeOpenAI } from "@langfuse/openai";
import { setLangfuseTracerProvider } from "@langfuse/tracing";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { Client } from "langsmith";
import { wrapOpenAI } from "langsmith/wrappers/openai";
import OpenAI from "openai";

const usage = { prompt_tokens: 1000, completion_tokens: 50, total_tokens: 1050 };
const content = "I read a and delete b.";
const calls = [
  { id: "call_1", type: "function", function: { name: "read", arguments: '{"path": "a"}' } },
  { id: "call_2", type: "function", function: { name: "delete", arguments: '{"path": "b"}' } },
];
const choice = (delta, finish_reason = null) => ({ choices: [{ index: 0, delta, finish_reason }], usage: null });
/** The pieces in which the provider streams a call: the name first, then its arguments, each with the call's index. */
function pieces({ function: { name, arguments: text }, ...call }, index) {
  const parts = [{ ...call, function: { name, arguments: "" } }];
  for (const piece of [text.slice(0, 5), text.slice(5)]) parts.push({ function: { arguments: piece } });
  return parts.map((part) => choice({ tool_calls: [{ index, ...part }] }));
}
const streamed = [
  choice({ role: "assistant", content }),
  ...calls.flatMap(pieces),
  choice({}, "tool_calls"),
  { choices: [], usage },
];
async function provider(_, { body }) {
  const head = { id: "1", created: 1, model: "gpt-4.1" };
  if (!JSON.parse(body).stream) {
    const message = { role: "assistant", content, tool_calls: calls };
    const choices = [{ index: 0, message, finish_reason: "tool_calls" }];
    return Response.json({ ...head, object: "chat.completion", choices, usage });
  }
  const chunks = streamed.map((chunk) => JSON.stringify({ ...head, object: "chat.completion.chunk", ...chunk }));
  const lines = [...chunks, "[DONE]"].map((data) => `data: ${data}\n\n`);
  return new Response(lines.join(""), { headers: { "content-type": "text/event-stream" } });
}

const exporter = new InMemorySpanExporter();
const tracerProvider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
setLangfuseTracerProvider(tracerProvider);
const openinference = new OpenAIInstrumentation({ tracerProvider });
const question = { model: "gpt-4.1", messages: [{ role: "user", content: "Go." }] };
const stream = { ...question, stream: true, stream_options: { include_usage: true } };

async function show(name, client, wanted) {
  const ways = {
    "not streamed": () => client.chat.completions.create(question),
    streamed: async () => {
      for await (const _ of await client.chat.completions.create(stream));
    },
  };
  if (name === "langfuse") {
    ways["left early"] = async () => {
      for await (const _ of await client.chat.completions.create(stream)) break;
    };
  }
  for (const [way, call] of Object.entries(ways)) {
    await call();
    await sleep(300);
    const spans = exporter.getFinishedSpans();
    console.log(`${name}, ${way}: ${spans.length} of 1 span`);
    const attributes = Object.entries(spans[0]?.attributes ?? {}).filter(([key]) => wanted.test(key));
    for (const [key, value] of attributes.sort()) console.log(`  ${key.replace(wanted, "")} ${value}`);
    exporter.reset();
  }
}
const client = () => new OpenAI({ apiKey: "none", fetch: provider, maxRetries: 0 });
await show("langfuse", observeOpenAI(client()), /^langfuse\.observation\.(?=output|usage_details)/);

const runs = [];
class Runs extends Client {
  async createRun() {}
  async updateRun(_, run) {
    runs.push(run.outputs);
  }
}
const langsmith = new Runs({ apiKey: "none", autoBatchTracing: false });
const wrapped = wrapOpenAI(client(), { client: langsmith, tracingEnabled: true });
await wrapped.chat.completions.create(question);
for await (const _ of await wrapped.chat.completions.create(stream));
await sleep(300);
for (const { choices, usage_metadata: counts } of runs) {
  console.log(`langsmith: ${counts.input_tokens} and ${counts.output_tokens} tokens`);
  console.log(`  ${JSON.stringify(choices[0].message.tool_calls)}`);
}

openinference.manuallyInstrument(OpenAI);
await show("openinference", client(), /^llm\.(output_messages\.0\.message\.)?(?=content|tool_calls|token_count)/);
JS
timeout 60 node spans.mjs | tee seen
diff seen - <<'SEEN'
langfuse, not streamed: 1 of 1 span
  output {"role":"assistant","content":"I read a and delete b.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\": \"a\"}"}},{"id":"call_2","type":"function","function":{"name":"delete","arguments":"{\"path\": \"b\"}"}}]}
  usage_details {"input":1000,"output":50,"total":1050}
langfuse, streamed: 1 of 1 span
  output {"tool_calls":[{"function":{"name":"delete","arguments":"{\"path\": \"a\"}{\"path\": \"b\"}"}}]}
  usage_details {"input":1000,"output":50,"total":1050}
langfuse, left early: 0 of 1 span
langsmith: 1000 and 50 tokens
  [{"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\": \"a\"}"}},{"id":"call_2","type":"function","function":{"name":"delete","arguments":"{\"path\": \"b\"}"}}]
langsmith: 1000 and 50 tokens
  [{"index":0,"id":"call_1","type":"function","function":{"name":"readdelete","arguments":"{\"path\": \"a\"}{\"path\": \"b\"}"}}]
openinference, not streamed: 1 of 1 span
  content I read a and delete b.
  tool_calls.0.tool_call.function.arguments {"path": "a"}
  tool_calls.0.tool_call.function.name read
  tool_calls.0.tool_call.id call_1
  tool_calls.1.tool_call.function.arguments {"path": "b"}
  tool_calls.1.tool_call.function.name delete
  tool_calls.1.tool_call.id call_2
  token_count.completion 50
  token_count.prompt 1000
  token_count.total 1050
openinference, streamed: 1 of 1 span
  content I read a and delete b.
  tool_calls.0.tool_call.function.arguments {"path": "a"}{"path": "b"}
  tool_calls.0.tool_call.function.name readdelete
  tool_calls.0.tool_call.id call_1call_2
SEEN
