"""One file per command of the program; each imports what it needs inside its functions."""
