"""The likelihoods: exact and subset (dense), the family of anchors and neighbours, the paper's Nystrom."""
