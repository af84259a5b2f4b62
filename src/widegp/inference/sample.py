"""Draws of the posterior of z by the No-U-Turn sampler of numpyro, on the exact objective.

The density and its gradient are those of `PosteriorDensity`, called from JAX; nothing is written twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widegp.inference.density import PosteriorDensity
from widegp.inference.evidence import Weighted
from widegp.inference.posterior_points import principal
from widegp.inference.rounds import Fitted
from widegp.inference.theta import Averaged, ParameterPosterior, mode_of, named

CHAINS, WARM_UP, DRAWS = 4, 500, 1000
# Draws over which predictions are averaged.
MEMBERS = 64


def nuts(
    fitted: Fitted, seed: int = 0, chains: int = CHAINS, warm_up: int = WARM_UP, draws: int = DRAWS
) -> Averaged | None:
    """``chains`` times ``draws`` draws from the end of a fit on; None where it has no Hessian."""
    found_mode = mode_of(fitted)
    if found_mode is None:
        return None
    density, mode = found_mode
    sds, vectors = principal(mode.hessian)
    z, rhat = _drawn(density, mode.z, vectors * sds, seed, (chains, warm_up, draws))
    names, weights, few = named(density.space), np.full(len(z), 1 / len(z)), min(len(z), MEMBERS)
    found = ParameterPosterior("sample", *names, z, weights, chains=chains, rhat=rhat)
    kept = z[np.linspace(0, len(z) - 1, few).astype(int)]
    return Averaged(found, Weighted(kept, np.full(few, 1 / few)))


def _drawn(
    density: PosteriorDensity, centre: np.ndarray, root: np.ndarray, seed: int, sizes: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws z = centre + root u (chains * draws, p), root root' = H^-1, and R-hat (p,) of z.

    In u the posterior is nearly a standard Gaussian, the place where NUTS takes the fewest steps.
    """
    try:
        import jax
        from numpyro.diagnostics import split_gelman_rubin
        from numpyro.infer import MCMC, NUTS
    except ImportError as error:
        raise ImportError(
            "posterior='sample' needs numpyro; install it by pip install 'widegp[sample]'."
        ) from error
    chains, warm_up, draws = sizes
    with jax.enable_x64(True):
        sampler = NUTS(potential_fn=_potential(density, centre, root), target_accept_prob=0.9)
        mcmc = MCMC(
            sampler, num_warmup=warm_up, num_samples=draws, num_chains=chains, progress_bar=False,
            chain_method="sequential",
        )  # fmt: skip
        start = np.random.default_rng(seed).standard_normal((chains, len(centre)))
        mcmc.run(jax.random.PRNGKey(seed), init_params=jax.numpy.asarray(start if chains > 1 else start[0]))
        u = np.asarray(mcmc.get_samples(group_by_chain=True))
    z = centre + u @ root.T
    return z.reshape(-1, len(centre)), np.asarray(split_gelman_rubin(z))


def _potential(density: PosteriorDensity, centre: np.ndarray, root: np.ndarray) -> Any:
    """-log p(y, z(u)) as a function of u (p,) that JAX can differentiate; a wall outside the bounds.

    JAX calls back from threads of its own, in which float64 is not switched on, and would round what it is
    given there. So the numbers cross as pairs of 32 bits.
    """
    import jax
    import jax.numpy as jnp

    low, high = density.bounds.T
    shape = np.empty((len(centre) + 1, 2), np.uint32)

    def bits(u: Any) -> np.ndarray:
        z = centre + root @ np.asarray(u).view(np.float64)[:, 0]
        if np.any((z < low) | (z > high)):
            return np.append(np.inf, np.zeros_like(z)).view(np.uint32).reshape(-1, 2)
        with jax.enable_x64(True):
            value, gradient, _, problem = density(z)
        found = np.append(value, root.T @ gradient)
        if problem is not None or not np.all(np.isfinite(found)):
            found = np.append(np.inf, np.zeros_like(z))
        return found.view(np.uint32).reshape(-1, 2)

    def answer(u: Any) -> Any:
        """(p + 1,): the value, then the gradient by u."""
        sent = jax.lax.bitcast_convert_type(u, jnp.uint32)
        return jax.lax.bitcast_convert_type(
            jax.pure_callback(bits, shape, sent, vmap_method="sequential"), jnp.float64
        )

    @jax.custom_vjp
    def potential(u: Any) -> Any:
        return answer(u)[0]

    def forward(u: Any) -> tuple[Any, Any]:
        found = answer(u)
        return found[0], found[1:]

    potential.defvjp(forward, lambda gradient, bar: (bar * gradient,))
    return potential
