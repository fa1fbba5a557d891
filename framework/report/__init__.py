"""What a person reads: progress on a terminal, plain lines in a file, streams that never raise. No torch."""
