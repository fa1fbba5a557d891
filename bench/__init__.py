"""Benchmarks: one file a question, each with the command that answers it."""
