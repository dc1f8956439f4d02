#!/usr/bin/env bash
# @tarquinen/opencode-dcp 3.1.14 (npm), a plugin that prunes the context of OpenCode: of a tool that was called twice it removes
# the result that was there, and it stays removed when the turn that removed it is taken back.
#
# Behaviour seen: when the model compresses something, of repeated calls (same tool, same arguments) "only the most recent
# output" is kept. (1) A call that failed is a repeated call, too, though it has no output: a file was read, and not found
# when it was read again. The text of the file is removed, as "superseded or no longer needed"; what is kept is the error.
# (2) The last one counts also where the range that is being compressed has it: the first result is removed for the sake of a
# second one, of which a summary is left. (3) A turn that is undone in OpenCode, which deletes its messages, takes its
# compression with it: the messages are whole again. The removed results are not: here the second read was undone together
# with the compression, so that the file was read once, and its text is not sent to the model any more. It is the same
# after a restart: what was removed is kept in a file of the plugin, and nothing is ever taken out of it.
#
# Needs npm with a registry, and Node 20; OpenCode's part is made up. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit --legacy-peer-deps @tarquinen/opencode-dcp@3.1.14 \
  @opencode-ai/plugin@1.18.33 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work XDG_CONFIG_HOME=$work/config XDG_DATA_HOME=$work/data
unset OPENCODE_CONFIG_DIR
mkdir -p config/opencode
echo '{"enabled": true, "autoUpdate": false}' >config/opencode/dcp.jsonc
cat >prune.mjs <<'JS'
import plugin from "@tarquinen/opencode-dcp";

const model = { providerID: "anthropic", modelID: "claude-sonnet-5" };
let time = Date.parse("2026-11-27T22:10:00.000Z");

/** A session as OpenCode has it, and the plugin as it calls it. */
async function open(sessionID) {
  let messages = [];
  const get = async () => ({ data: { id: sessionID } });
  const session = { get, messages: async () => ({ data: structuredClone(messages) }), prompt: async () => {} };
  const client = { session, tui: { showToast: async () => {} } };
  const start = () => plugin({ client, directory: process.cwd(), worktree: process.cwd() });
  let hooks = await start();
  const add = (role, ...parts) => {
    const id = `msg_${String(messages.length + 1).padStart(4, "0")}`;
    messages.push({ info: { id, sessionID, role, agent: "build", time: { created: (time += 1000) }, model, ...model }, parts });
    return id;
  };
  const call = (tool, callID, input, state) => ({ type: "tool", tool, callID, state: { input, time: {}, ...state } });
  const till = { filePath: "/shop/till.py" };
  const asked = { ask: async () => {}, metadata: () => {}, sessionID, agent: "build" };
  return {
    user: (text) => add("user", { type: "text", text }),
    answer: (text) => add("assistant", { type: "step-start" }, { type: "text", text }),
    read: (callID, state) => add("assistant", { type: "step-start" }, call("read", callID, till, state)),
    undo: (count) => void (messages = messages.slice(0, -count)),
    restart: async () => void (hooks = await start()),
    compress: async (startId, endId) => {
      const messageID = add("assistant", { type: "step-start" });
      const input = { topic: "door", content: [{ startId, endId, summary: "Something was done." }] };
      const output = await hooks.tool.compress.execute(input, { ...asked, messageID, callID: "compress" });
      messages.at(-1).parts.push(call("compress", "compress", input, { status: "completed", output }));
    },
    sent: async (name) => {
      const output = { messages: structuredClone(messages) };
      await hooks["experimental.chat.messages.transform"]({}, output);
      const text = ({ text, tool, state }) => (tool ? `${tool}: ${state.output ?? state.error}` : (text ?? ""));
      const short = (said) => said.replace(/Output removed .*(?=])/, "Output removed");
      const plain = (said) => short(said.replace(/<dcp-[^>]*>[^<]*<\/dcp-[^>]*>/g, ""));
      const said = output.messages.map(({ parts }) => parts.map(text).map(plain).filter(Boolean).join(", "));
      console.log(`${name}:`, said.join(" | ").replace(/\s+/g, " ").trim());
    },
  };
}

const found = { status: "completed", output: "the text of the file" };
const missing = { status: "error", error: "File not found: /shop/till.py" };
async function talk(sessionID, second) {
  const session = await open(sessionID);
  session.user("Read the till.");
  session.read("read-1", found);
  session.answer("I read it.");
  session.user("Look at the door.");
  session.answer("I looked.");
  session.user("Is the till there still?");
  session.read("read-2", second);
  await session.sent(`${sessionID}, before`);
  return session;
}

const fails = await talk("fails", missing);
await fails.compress("m0004", "m0005");
await fails.sent("compressed");

const inside = await talk("inside", found);
await inside.compress("m0006", "m0007");
await inside.sent("compressed");

const undone = await talk("undone", found);
await undone.compress("m0004", "m0005");
await undone.sent("compressed");
undone.undo(3);
await undone.sent("undone");
await undone.restart();
await undone.sent("restarted");
JS
timeout 60 node prune.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
fails, before: Read the till. | read: the text of the file | I read it. | Look at the door. | I looked. | Is the till there still? | read: File not found: /shop/till.py
compressed: Read the till. | read: [Output removed] | I read it. | [Compressed conversation section] Something was done. | Is the till there still? | read: File not found: /shop/till.py | compress: Compressed 2 messages into [Compressed conversation section].
inside, before: Read the till. | read: the text of the file | I read it. | Look at the door. | I looked. | Is the till there still? | read: the text of the file
compressed: Read the till. | read: [Output removed] | I read it. | Look at the door. | I looked. | [Compressed conversation section] Something was done. | compress: Compressed 2 messages into [Compressed conversation section].
undone, before: Read the till. | read: the text of the file | I read it. | Look at the door. | I looked. | Is the till there still? | read: the text of the file
compressed: Read the till. | read: [Output removed] | I read it. | [Compressed conversation section] Something was done. | Is the till there still? | read: the text of the file | compress: Compressed 2 messages into [Compressed conversation section].
undone: Read the till. | read: [Output removed] | I read it. | Look at the door. | I looked.
restarted: Read the till. | read: [Output removed] | I read it. | Look at the door. | I looked.
SEEN
