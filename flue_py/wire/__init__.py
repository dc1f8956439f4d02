"""Messages between a provider's form and ours: OpenAI chat, OpenAI Responses, Anthropic."""
