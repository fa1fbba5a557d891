"""Executing a graph: scheduler, residency manager, stage context and typed events."""
