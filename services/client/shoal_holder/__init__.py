"""The data holder's vault: records, keys, policy, ledger, noise and sealing."""
