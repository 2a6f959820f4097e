"""`make bench`: the shorter of the measurements in docs/measurements.md, in turn."""

import runpy

for part in ("holders", "uploads", "node_costs", "freezing", "certificates"):
    print(f"\n{part}")
    runpy.run_module(f"bench.{part}", run_name="__main__")
