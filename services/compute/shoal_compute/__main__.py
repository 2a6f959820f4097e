"""`python -m shoal_compute`: runs a Compute node until it is told to stop.

A process that adds shares up for the node loads this module too, and must not load all of the
service with it.
"""

if __name__ == "__main__":
    from shoal_compute.assembly import assemble
    from shoal_compute.settings import ComputeSettings
    from shoal_service.running import run_service

    run_service("compute", assemble, tick_seconds=0.2, settings=ComputeSettings)
