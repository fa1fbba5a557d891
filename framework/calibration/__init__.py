"""What a machine really does: measured once, learned from runs, kept per device. No torch but in `measure`."""
