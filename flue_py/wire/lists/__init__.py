"""Whole lists of messages as a provider takes them, made of what the model sees: a module for each provider."""
