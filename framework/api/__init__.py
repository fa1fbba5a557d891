"""The package as a library: compose, plan, open and run from Python. Its files import torch in functions only."""
