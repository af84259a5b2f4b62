"""The protocol of the paper: where its fits begin, which priors they have, and how long they run."""

from __future__ import annotations

from widegp.kernels.priors import Beta, InverseGamma, Prior

RANK, STEPS = 500, 50
# eta of eq. (nugget_frac), and the noise from which the published rows on real data begin.
NOISE_FRACTION, REAL_NOISE_START = 0.04, 0.02**2
START = {"sigma_a2": 1.0, "sigma_u2": 1.0, "sigma_b2": 1.0, "sigma_v2": 1.0, "alpha": 0.5, "w": 0.5}
PRIOR_WEIGHT = 100.0
LEVEL_MODE = 1.01


def paper_priors(noise: float | None) -> dict[str, Prior]:
    """Priors with their modes where the fit starts, as heavy as 100 observations; ``noise`` is the variance
    of the noise there, or None where it is not estimated.

    The paper gives none. Under flat ones sigma_b2, sigma_a2 and w of the scenarios move by +-0.03 with the
    sign of one draw's level; the published values are steady, and sigma_b2 is 1.01 on average.
    """
    modes = {name: value for name, value in START.items() if name.startswith("sigma")}
    modes |= {"sigma_b2": LEVEL_MODE} | ({} if noise is None else {"sigma_eps2": noise})
    variances = {name: InverseGamma(PRIOR_WEIGHT, (PRIOR_WEIGHT + 1) * mode) for name, mode in modes.items()}
    fractions = {name: Beta(PRIOR_WEIGHT, PRIOR_WEIGHT) for name in ("alpha", "w")}
    return {**variances, **fractions}
