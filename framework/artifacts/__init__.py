"""What a run keeps of its values: tensors on disk, whole and hashed. Below runtime and outputs, which both use it."""
