"""Table 1 of Heikkilä et al. 2017 with all the cryptography, through the services' own code."""
