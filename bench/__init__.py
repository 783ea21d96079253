"""What anyplug costs: ratios, measured within one run. `make bench` prints them; they are never a timed test."""
