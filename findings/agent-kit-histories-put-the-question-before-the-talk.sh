#!/usr/bin/env bash
# @inngest/agent-kit 0.13.2 (npm), its history adapters: the new question is sent before all that was said, and again behind it;
# an agent on its own stores nothing; what was answered before a failure is lost.
#
# Behaviour seen, with the adapter of its docs (each method does what they show, over a list): (1) A network of one agent, third
# question of a thread: the model is sent the third question, then the first with its answer, the second with its answer, and the
# third once more. The prompt is put in front of the history, and the history was read after the question was stored, as the
# docs recommend "to preserve conversation order". A first question is sent twice. (2) An agent with `history`, no network: "Now the
# agent will automatically persist conversations". Neither the questions nor the answers are stored: appendUserMessage is never
# called, and appendResults is, after each run, with no results. The second question is sent without the first. (3) A network of
# two agents, of which the first answers and the model of the second fails: the first one's answer, paid, is not stored,
# although the second was sent it. The thread has the question alone; asked again, it is sent three times, without that answer.
#
# Needs Node 20 with npm and a registry. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
export HOME=$work
npm init -y >log && npm install --silent --ignore-scripts @inngest/agent-kit@0.13.2 inngest@3.43.1 zod@4.1.0 >>log
cat >chat.mjs <<'JS'
import { createServer } from "node:http";
import { AgentResult, createAgent, createNetwork, createState, openai } from "@inngest/agent-kit";

const requests = [];
const server = createServer((request, response) => {
  let body = "";
  request.on("data", (piece) => (body += piece));
  request.on("end", () => {
    const { messages } = JSON.parse(body);
    requests.push(messages.map((message) => `${message.role} ${message.content}`).join(" | "));
    const question = messages[1].content.split(" ").at(-1);
    const message = { role: "assistant", content: `answer ${question}` };
    const failed = { error: { message: "overloaded", type: "server_error" } };
    const answered = {
      id: "1",
      object: "chat.completion",
      created: 1,
      model: "m",
      choices: [{ index: 0, finish_reason: "stop", message }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    };
    response.statusCode = messages[0].content === "Check." ? 500 : 200;
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(response.statusCode === 500 ? failed : answered));
  });
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const model = openai({ model: "m", apiKey: "none", baseUrl: `http://127.0.0.1:${server.address().port}/v1` });

// The adapter of the docs, with a list for each thread in place of a table.
const threads = { network: [], alone: [], failing: [] };
const calls = [];
const history = {
  createThread: async ({ state }) => ({ threadId: state.threadId }),
  get: async ({ threadId }) =>
    threads[threadId].map(
      ({ name, role, content, at }) => new AgentResult(name, [{ type: "text", role, content, stop_reason: "stop" }], [], at),
    ),
  appendUserMessage: async ({ threadId, userMessage }) => {
    calls.push("appendUserMessage");
    threads[threadId].push({ name: "user", role: "user", content: userMessage.content, at: userMessage.timestamp });
  },
  appendResults: async ({ threadId, newResults }) => {
    calls.push(`appendResults of ${newResults.length}`);
    for (const result of newResults) {
      const content = result.output.filter((message) => message.type === "text").map((message) => message.content).join("\n");
      threads[threadId].push({ name: result.agentName, role: "assistant", content, at: result.createdAt });
    }
  },
};

function show(threadId) {
  for (const request of requests.splice(0)) console.log("  sent:", request);
  console.log("  stored:", threads[threadId].map(({ role, content }) => `${role} ${content}`).join(" | ") || "nothing");
  console.log("  calls:", calls.splice(0).join(", "));
}

const helper = createAgent({ name: "helper", system: "Help.", model });
const checker = createAgent({ name: "checker", system: "Check.", model });
function network(...agents) {
  return createNetwork({ name: "network", agents, history, router: ({ callCount }) => agents[callCount] });
}
const state = (threadId) => createState({}, { threadId });

console.log("a network:");
for (const question of ["question 1", "question 2", "question 3"]) {
  await network(helper).run(question, { state: state("network") });
}
show("network");

console.log("an agent:");
const agent = createAgent({ name: "helper", system: "Help.", model, history });
for (const question of ["question 1", "question 2"]) {
  await agent.run(question, { state: state("alone") });
}
show("alone");

console.log("a network, failing:");
await network(helper, checker).run("question 1", { state: state("failing") }).catch((error) => console.log("  error:", error.message));
await network(helper).run("question 1", { state: state("failing") });
show("failing");
server.close();
JS
node chat.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
a network:
  sent: system Help. | user question 1 | user question 1
  sent: system Help. | user question 2 | user question 1 | assistant answer 1 | user question 2
  sent: system Help. | user question 3 | user question 1 | assistant answer 1 | user question 2 | assistant answer 2 | user question 3
  stored: user question 1 | assistant answer 1 | user question 2 | assistant answer 2 | user question 3 | assistant answer 3
  calls: appendUserMessage, appendResults of 1, appendUserMessage, appendResults of 1, appendUserMessage, appendResults of 1
an agent:
  sent: system Help. | user question 1
  sent: system Help. | user question 2
  stored: nothing
  calls: appendResults of 0, appendResults of 0
a network, failing:
  error: overloaded
  sent: system Help. | user question 1 | user question 1
  sent: system Check. | user question 1 | user question 1 | assistant answer 1
  sent: system Help. | user question 1 | user question 1 | user question 1
  stored: user question 1 | user question 1 | assistant answer 1
  calls: appendUserMessage, appendUserMessage, appendResults of 1
SEEN
