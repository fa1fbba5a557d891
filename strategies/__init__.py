"""One file per residency strategy, registered by name; sees the engine through `framework` only."""
