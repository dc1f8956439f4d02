#!/usr/bin/env bash
# langchain 1.5.14 (npm), summarizationMiddleware: what stands for a conversation is not made of what was said in it.
#
# Behaviour seen, in an agent with a checkpointer: (1) the messages are put into the prompt for the summary by JavaScript's
# `replace`, which takes `$$`, `$&`, "$'" and "$`" in them for signs of its own: a price of `$$5` is `$5` there, the `$&` of
# a sed command is `{messages}`, and the `$'` of a shell command is the end of the prompt. (2) Where the call for the summary
# fails, as by a rate limit, nothing is raised: the words "Error generating summary: Error: 429" are the summary. They take
# the place of the messages in the state, too, and the next summary is made of them. (3) A system message at the head of the
# messages is set apart, given to the summary, and left out of what is kept: it is not sent any more.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit langchain@1.5.14 @langchain/core@1.4.0 @langchain/langgraph@1.7.3 >npm.log 2>&1 ||
    { cat npm.log; exit 2; }
cat >summary.mjs <<'JS'
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { MemorySaver } from "@langchain/langgraph";
import { AIMessage, createAgent, summarizationMiddleware } from "langchain";

class Model extends BaseChatModel {
  constructor(answer) {
    super({ maxRetries: 0 });
    this.answer = answer;
    this.sent = [];
  }
  _llmType() {
    return "made-up";
  }
  bindTools() {
    return this;
  }
  async _generate(messages) {
    this.sent.push(messages.map((message) => `${message.getType()}: ${message.content}`));
    const text = this.answer();
    return { generations: [{ text, message: new AIMessage(text) }] };
  }
}

let fails = true;
const model = new Model(() => "answer");
const summaries = new Model(() => {
  if (fails) throw new Error("429");
  return "summary";
});
const agent = createAgent({
  model,
  tools: [],
  checkpointer: new MemorySaver(),
  middleware: [summarizationMiddleware({ model: summaries, trigger: { messages: 6 }, keep: { messages: 1 } })],
});
const thread = { configurable: { thread_id: "thread" } };
const say = (...messages) => agent.invoke({ messages }, thread);
const user = (content) => ({ role: "user", content });
const show = (name, value) => console.log(name, JSON.stringify(value));

await say({ role: "system", content: "Be careful." }, user("It costs $$5. Run: sed 's/x/[$&]/'; echo $'tab'"));
show("sent:", model.sent.at(-1));
await say(user("second"));
await say(user("third"));
show("sent:", model.sent.at(-1));
const state = await agent.getState(thread);
show("stored:", state.values.messages.map((message) => message.content));
fails = false;
for (const question of ["fourth", "fifth"]) await say(user(question));
for (const [prompt] of summaries.sent) show("to summarize:", prompt.split("Messages to summarize:\n")[1]);
JS
node summary.mjs | tee seen
diff seen - <<'SEEN'
sent: ["system: Be careful.","human: It costs $$5. Run: sed 's/x/[$&]/'; echo $'tab'"]
sent: ["human: Here is a summary of the conversation to date:\n\nError generating summary: Error: 429","human: third"]
stored: ["Here is a summary of the conversation to date:\n\nError generating summary: Error: 429","third","answer"]
to summarize: "System: Be careful.\nHuman: It costs $5. Run: sed 's/x/[{messages}]/'; echo \n</messages>tab'\nAI: model, answer\nHuman: second\nAI: model, answer\n</messages>"
to summarize: "Human: Here is a summary of the conversation to date:\n\nError generating summary: Error: 429\nHuman: third\nAI: model, answer\nHuman: fourth\nAI: model, answer\n</messages>"
SEEN
