"""Streams that print any text on any console, so that showing a name never hides the real error. No torch."""

import io
import sys
from typing import TextIO


def make_safe(stream: TextIO) -> TextIO:
    """Return `stream` changed to escape what its code page lacks, instead of raising `UnicodeEncodeError`.

    The encoding stays the console's own; a stream without one, such as `io.StringIO`, is returned as it is.
    """
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


def make_console_safe() -> None:
    """Make standard output and error safe; called once, before the first line is printed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a windowed Python has none
            make_safe(stream)
