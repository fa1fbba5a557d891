"""Where weights lie on the host and how they reach the device: budgets, blobs, movers and the layer streamer."""
