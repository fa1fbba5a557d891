"""What an event costs that nobody hears, and one that somebody does.

    python -m bench.events [--json]

The figure is the fastest of the rounds, in nanoseconds, of asking, making and delivering. The goal is under 1000 for
an event without a listener.
"""

import argparse
import json
import timeit

from framework.runtime.events import EventBus, StepDone

ROUNDS, CALLS = 20, 20_000
GOAL_NS = 1000


def measure(bus: EventBus) -> float:
    """Return nanoseconds for one event."""

    def emit() -> None:  # as the runtime does inside its loops
        if bus.heard:
            bus.emit(StepDone(0, "denoise", 3, 40))

    return min(timeit.repeat(emit, number=CALLS, repeat=ROUNDS)) / CALLS * 1e9


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    figures = {"nobody": measure(EventBus()), "one listener": measure(EventBus(lambda event: None))}
    if parser.parse_args().json:
        print(json.dumps({"goal_ns": GOAL_NS, **figures}))
        return
    for name, cost_ns in figures.items():
        print(f"{name:<14}{cost_ns:8.0f} ns")
    print(f"goal {GOAL_NS} ns for an event that nobody hears: {'met' if figures['nobody'] < GOAL_NS else 'missed'}")


if __name__ == "__main__":
    main()
