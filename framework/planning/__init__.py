"""Known before it starts: sizes, a shape-only profile, a model of time, and the choice of a placement.

Only `profile` imports torch, and only on a cache miss; all else answers from headers, sheets and stored profiles.
"""
