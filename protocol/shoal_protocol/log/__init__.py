"""An append-only Merkle log in the open formats of C2SP, and what its witnesses sign.

`tiles`: the tree as static files, proofs made from them, and their checks. `notes`: signed notes,
checkpoints, cosignatures, and whose signatures a manifest asks for. `entries`: what Shoal logs.
"""
