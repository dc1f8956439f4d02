#!/usr/bin/env bash
# langchain 1.5.14 (npm), contextEditingMiddleware: what it leaves out of a request is deleted from the stored conversation.
#
# Behaviour seen, in an agent with a checkpointer and `ClearToolUsesEdit`, said to mirror an edit of Anthropic's API, which
# leaves the client's history as it is: here the edit is made in the very list of messages that is the agent's state. (1) After
# one question with four calls of a tool, three of the four results are "[cleared]" in what `invoke` gives back and in the newest
# checkpoint, also for an agent without the middleware: a model with a larger window, a summary or an audit gets no more. (2)
# Their artifacts, which no model is ever sent, are gone, and their status: that one of them was an error is not known any
# more. (3) With `clearToolInputs` the arguments of the calls go, too: that a file was written stays, but not which. The
# middleware of the same name for Python edits a copy: there, the state stays as it was.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit langchain@1.5.14 @langchain/core@1.4.0 @langchain/langgraph@1.7.3 zod@4.6.7 \
    >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >editing.mjs <<'JS'
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { MemorySaver } from "@langchain/langgraph";
import { AIMessage, ClearToolUsesEdit, contextEditingMiddleware, createAgent, tool } from "langchain";
import { z } from "zod";

class Model extends BaseChatModel {
  constructor() {
    super({ maxRetries: 0 });
    this.calls = 0;
  }
  _llmType() {
    return "made-up";
  }
  bindTools() {
    return this;
  }
  /** Four calls of the tool, one after another, and then an answer. */
  async _generate() {
    this.calls += 1;
    const file = `file${this.calls}`;
    const calls = [{ type: "tool_call", id: `call${this.calls}`, name: "write", args: { file } }];
    const message = this.calls <= 4 ? new AIMessage({ content: "", tool_calls: calls }) : new AIMessage("Done.");
    return { generations: [{ text: "", message }] };
  }
}
async function write({ file }) {
  if (file === "file2") throw new Error("no space left for file2");
  return [`written: ${file}`, { bytes: 4711 }];
}
const schema = z.object({ file: z.string() });
const options = { name: "write", description: "write", schema, responseFormat: "content_and_artifact" };
const checkpointer = new MemorySaver();
const agent = (middleware) => createAgent({ model: new Model(), tools: [tool(write, options)], checkpointer, middleware });

function show(name, messages) {
  console.log(`${name}:`);
  for (const { tool_calls: calls, tool_call_id: id, content, artifact, status } of messages) {
    for (const call of calls ?? []) console.log(`  ${call.id} ${JSON.stringify(call.args)}`);
    if (id) console.log(`  result of ${id}: ${content.split("\n")[0]}, ${JSON.stringify(artifact)}, ${status}`);
  }
}
const question = { messages: [{ role: "user", content: "Write four files." }] };
async function ask(name, edit) {
  const thread = { configurable: { thread_id: name } };
  const middleware = edit ? [contextEditingMiddleware({ edits: [new ClearToolUsesEdit(edit)] })] : [];
  const result = await agent(middleware).invoke(question, thread);
  show(name, result.messages);
  const { values } = await agent([]).getState(thread);
  const texts = (messages) => JSON.stringify(messages.map(({ content }) => content));
  console.log("  stored is the same:", texts(values.messages) === texts(result.messages));
}
const edit = { trigger: { messages: 4 }, keep: { messages: 1 } };
await ask("not edited", null);
await ask("edited", edit);
await ask("edited, with inputs", { ...edit, clearToolInputs: true });
JS
timeout 60 node editing.mjs | tee seen
diff seen - <<'SEEN'
not edited:
  call1 {"file":"file1"}
  result of call1: written: file1, {"bytes":4711}, success
  call2 {"file":"file2"}
  result of call2: Error: no space left for file2, undefined, error
  call3 {"file":"file3"}
  result of call3: written: file3, {"bytes":4711}, success
  call4 {"file":"file4"}
  result of call4: written: file4, {"bytes":4711}, success
  stored is the same: true
edited:
  call1 {"file":"file1"}
  result of call1: [cleared], undefined, undefined
  call2 {"file":"file2"}
  result of call2: [cleared], undefined, undefined
  call3 {"file":"file3"}
  result of call3: [cleared], undefined, undefined
  call4 {"file":"file4"}
  result of call4: written: file4, {"bytes":4711}, success
  stored is the same: true
edited, with inputs:
  call1 {}
  result of call1: [cleared], undefined, undefined
  call2 {}
  result of call2: [cleared], undefined, undefined
  call3 {}
  result of call3: [cleared], undefined, undefined
  call4 {"file":"file4"}
  result of call4: written: file4, {"bytes":4711}, success
  stored is the same: true
SEEN
