"""Whether two runs make the same bytes, and where they part. Its files say which of them import torch."""
