"""The paper's figures as a command: the published methods and ours, on the same data and splits."""
