"""`make bench`: every measurement whose figures the README gives, one after another."""

from bench import freezing, full_path, traffic, uploads

for part in (full_path, uploads, freezing, traffic):
    print(f"\n{part.__name__}: {(part.__doc__ or '').splitlines()[0]}")
    part.main()
