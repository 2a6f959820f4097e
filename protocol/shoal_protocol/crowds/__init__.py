"""Draw and Discard: learning under local privacy from crowds that no round could synchronise.

Pihur et al. (2018, arXiv:1807.04369; 2022, doi:10.1007/978-3-031-07689-3_33). The trainer keeps k
instances of one model. A client draws one at random, takes one clipped and noised step on one of
its records, and what it sends back replaces an instance chosen at random again.
"""
