"""What all parties of a consortium must agree on, bit for bit; it performs no input or output."""
