"""An append-only Merkle log in the open formats of C2SP, and what its witnesses sign.

Hashes are RFC 6962's. `notes`: signed notes, checkpoints, cosignatures. `proofs`: checks of
inclusion and consistency. `tiles`: the tree as static files, and proofs made from them. `entries`:
what Shoal logs. `witnessed`: whose signatures a manifest asks for.
"""
