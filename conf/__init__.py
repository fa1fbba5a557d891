"""Data only: Hydra config groups, JSON schemas, model sheets and the embedded model. Nothing here is imported."""
