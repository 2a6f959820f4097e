"""`make bench`: the shorter of the measurements in docs/measurements.md, in turn."""

from bench import (
    certificates,
    crowd_server,
    freezing,
    gossip,
    holders,
    node_costs,
    replicas,
    sharing,
    summing,
    thresholds,
    traffic,
    uploads,
)

for part in (
    holders,
    uploads,
    node_costs,
    replicas,
    crowd_server,
    freezing,
    summing,
    traffic,
    sharing,
    gossip,
    certificates,
    thresholds,
):
    print(f"\n{part.__name__}: {(part.__doc__ or '').splitlines()[0]}")
    part.main()
