"""One file per kind of stage, registered by name; sees the engine through the public names of `framework` only."""
