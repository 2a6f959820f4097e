"""The consortium's log, a chain of hashes that Compute nodes witness, and what counts by it.

`checkpoints`: its heads, who signed them, and proofs. `entries`: what is logged. `succession`:
which version of the manifest may follow another, and when it is believed.
"""
