"""Results on disk: run folders, videos, contact sheets and the record."""
