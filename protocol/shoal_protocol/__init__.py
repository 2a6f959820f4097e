"""The protocol: all that the parties must agree on, bit for bit; performs no input or output."""
