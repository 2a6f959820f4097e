"""`make bench`: the shorter of the measurements in docs/measurements.md, in turn."""

from bench import certificates, freezing, holders, node_costs, uploads

for part in (holders, uploads, node_costs, freezing, certificates):
    print(f"\n{part.__name__}: {(part.__doc__ or '').splitlines()[0]}")
    part.main()
