#!/usr/bin/env bash
# ai-sdk-cost-calculator 7.1.14 (npm) with ai 6.0.326 and with ai 7.0.173: a run of several steps is billed for the last step
# with the one, and as a single long request with the other.
#
# Behaviour seen: it "Requires ai (Vercel AI SDK) version 6.0.0 or higher", and withCost(), createTracker() and
# createCostAwareAI() give the handler for `onFinish`, which reads the event's `usage`. That is the last step's usage with ai 6,
# whose `totalUsage` nobody reads, and the sum of all steps with ai 7. An agent calls a tool twice and answers, each time with
# 100,000 tokens in and 100 out of claude-sonnet-4-5 (3 and 15 dollars per million, 6 and 22.50 for a request of more than
# 200,000 in). (1) With ai 6 the run costs 0.3015 dollars, a third of the 0.9045 that its three requests cost. (2) With ai 7 it
# costs 1.80675, twice as much: none of the requests is long, their sum is. (3) Tools that are billed per call are counted in
# all steps with both: two searches add 0.02. (4) getTotalRequestCount() is 1. Its README says nothing of steps; a comment in
# its code says that thresholds apply per call, "without being distorted by cumulative token totals".
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
cat >bill.mjs <<'JS'
import { generateText, stepCountIs, tool } from "ai";
import * as mocks from "ai/test";
import { calculateCost, createTracker, withCost } from "ai-sdk-cost-calculator";
import { z } from "zod";

const NAME = "claude-sonnet-4-5";
const usage = {
  inputTokens: { total: 100000, noCache: 100000, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 100, text: 100, reasoning: 0 },
};
let requests = 0;
const doGenerate = async () => {
  requests += 1;
  const call = { type: "tool-call", toolCallId: `call${requests}`, toolName: "web_search", input: "{}" };
  const content = requests % 3 ? call : { type: "text", text: "It is here." };
  const finishReason = { unified: requests % 3 ? "tool-calls" : "stop" };
  return { content: [content], finishReason, usage, warnings: [] };
};
const Model = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3;
const search = tool({ description: "search", inputSchema: z.object({}), execute: async () => "seen" });
const run = (onFinish) =>
  generateText({
    model: new Model({ doGenerate }),
    prompt: "Where is it?",
    tools: { web_search: search },
    stopWhen: stepCountIs(5),
    onFinish,
  });

const tracker = createTracker();
const { steps } = await run(tracker.onFinish(NAME));
const each = steps.map((step) => calculateCost({ model: NAME, usage: step.usage }).totalCost);
console.log("each request:", ...each, "together:", each.reduce((sum, cost) => sum + cost));
const { inputCost, outputCost, webSearchCost } = tracker.getTotal();
console.log("tracker, tokens:", inputCost + outputCost, "searches:", webSearchCost, "requests:", tracker.getTotalRequestCount());
await run(withCost(NAME, ({ cost }) => console.log("withCost, tokens:", cost.inputCost + cost.outputCost)));
JS
for version in 6.0.326 7.0.173; do
  rm -rf node_modules package-lock.json package.json
  npm install --silent --no-fund --no-audit ai-sdk-cost-calculator@7.1.14 ai@$version zod@4.6.7 >npm.log 2>&1 || { cat npm.log; exit 2; }
  echo "ai $version"
  timeout 60 node bill.mjs 2>errors || { cat errors; exit 2; }
done | tee seen
diff seen - <<'SEEN'
ai 6.0.326
each request: 0.3015 0.3015 0.3015 together: 0.9045
tracker, tokens: 0.3015 searches: 0.02 requests: 1
withCost, tokens: 0.3015
ai 7.0.173
each request: 0.3015 0.3015 0.3015 together: 0.9045
tracker, tokens: 1.80675 searches: 0.02 requests: 1
withCost, tokens: 1.80675
SEEN
