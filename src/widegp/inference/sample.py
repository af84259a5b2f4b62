"""Draws of the posterior of z by the No-U-Turn sampler of numpyro, on the exact objective.

The density and its gradient are those of `PosteriorDensity`, called from JAX; nothing is written twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from widegp.inference.density import PosteriorDensity
from widegp.inference.fit import Fitted
from widegp.inference.posterior_points import principal
from widegp.inference.result import Reason
from widegp.inference.theta import ParameterPosterior, density_of, named

CHAINS, WARM_UP, DRAWS = 4, 500, 1000


def nuts(
    fitted: Fitted, seed: int = 0, chains: int = CHAINS, warm_up: int = WARM_UP, draws: int = DRAWS
) -> ParameterPosterior | None:
    """``chains`` times ``draws`` draws from the end of a fit on; None where it has no Hessian."""
    density = density_of(fitted)
    if fitted.optimum.reason is Reason.FAILED or fitted.optimum.z.size == 0:
        return None
    mode = density.mode(density.space.pack(fitted.values))
    if mode is None:
        return None
    sds, vectors = principal(mode.hessian)
    z, rhat = _drawn(density, mode.z, vectors * sds, seed, (chains, warm_up, draws))
    weights = np.full(len(z), 1 / len(z))
    return ParameterPosterior("sample", *named(density.space), z, weights, chains=chains, rhat=rhat)


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
    """-log p(y, z(u)) as a function of u (p,) that JAX can differentiate; a wall outside the bounds."""
    import jax
    import jax.numpy as jnp

    low, high = density.bounds.T
    shapes = (jax.ShapeDtypeStruct((), np.float64), jax.ShapeDtypeStruct(centre.shape, np.float64))

    def answer(u: Any) -> tuple[np.ndarray, np.ndarray]:
        z = centre + root @ np.asarray(u)
        inside = bool(np.all((z >= low) & (z <= high)))
        value, gradient, _, problem = density(z) if inside else (np.inf, np.zeros_like(z), 0.0, "outside")
        if problem is not None:
            return np.asarray(np.inf), np.zeros_like(z)
        return np.asarray(value), root.T @ gradient

    @jax.custom_vjp
    def potential(u: Any) -> Any:
        return jax.pure_callback(answer, shapes, u, vmap_method="sequential")[0]

    def forward(u: Any) -> tuple[Any, Any]:
        value, gradient = jax.pure_callback(answer, shapes, u, vmap_method="sequential")
        return value, gradient

    def backward(gradient: Any, bar: Any) -> tuple[Any]:
        return (jnp.asarray(bar) * gradient,)

    potential.defvjp(forward, backward)
    return potential
