"""Weights from checkpoints to where the placement wants them."""
