"""OpenAI chat messages and Responses items, as files."""
