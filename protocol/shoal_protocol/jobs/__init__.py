"""Jobs: what an analyst asks, who takes part, how it ends and what it cost."""
