"""K_mix in GPflow: `SGPR` with fixed anchors, its objective with gradient and its L-BFGS.

    K(x, x') = sigma_b2 + sigma_v2 {w (2/pi) arcsin(s) + (1 - w) [alpha c + (1 - alpha)^2 J]}
    c = sigma_a2 + sigma_u2 x.x',  s = t c / sqrt((1 + t d)(1 + t e)) with t = pi/2
    J = sqrt(d e) G(rho) / 2 pi,   G = sqrt(1 - rho^2) + rho (pi - arccos rho),  rho = c / sqrt(d e)

Row quantities are vectors, so that an entry costs few passes over memory, and G brings its own derivative
pi - arccos rho, which is cheaper than the one that TensorFlow would make and finite at rho = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from peers_shared import KERNEL, Task, Trace, Values, penalty

PACKAGES = ("gpflow", "tensorflow")
T = math.pi / 2
# GPflow adds this to the anchors' matrix; its default of 1e-6 would be another objective.
JITTER = 1e-10


def use_threads(count: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


@tf.custom_gradient
def angular(rho: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """G(rho)."""
    rho = tf.clip_by_value(rho, -1.0, 1.0)
    angle = math.pi - tf.acos(rho)
    return tf.sqrt(1 - rho * rho) + rho * angle, lambda upstream: upstream * angle


class Mixed(gpflow.kernels.Kernel):
    """`widegp.kernels.Mixed` with one sigma_u2."""

    def __init__(self, values: Values) -> None:
        super().__init__()
        for name in KERNEL:
            unit = name in ("alpha", "w")
            transform = tfp.bijectors.Sigmoid() if unit else gpflow.utilities.positive()
            setattr(self, name, gpflow.Parameter(values[name], transform=transform))

    def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
        X2 = X if X2 is None else X2
        d, e = self._variance(X)[:, None], self._variance(X2)[None, :]
        c = self.sigma_a2 + tf.matmul(self.sigma_u2 * X, X2, transpose_b=True)
        smooth = tf.asin(c * tf.sqrt(T / (1 + T * d)) * tf.sqrt(T / (1 + T * e)))
        root_d, root_e = tf.sqrt(d), tf.sqrt(e)
        bent = angular(c * (1 / root_d) * (1 / root_e)) * root_d * root_e
        return self._mixed(smooth, c, bent)

    def K_diag(self, X: tf.Tensor) -> tf.Tensor:
        d = self._variance(X)
        return self._mixed(tf.asin(T * d / (1 + T * d)), d, math.pi * d)

    def _mixed(self, smooth: tf.Tensor, c: tf.Tensor, bent: tf.Tensor) -> tf.Tensor:
        by_smooth = self.sigma_v2 * self.w * (2 / math.pi)
        by_c = self.sigma_v2 * (1 - self.w) * self.alpha
        by_bent = self.sigma_v2 * (1 - self.w) * (1 - self.alpha) ** 2 / (2 * math.pi)
        return self.sigma_b2 + by_smooth * smooth + by_c * c + by_bent * bent

    def _variance(self, X: tf.Tensor) -> tf.Tensor:
        return self.sigma_a2 + self.sigma_u2 * tf.reduce_sum(X * X, axis=-1)


class Model:
    """-log of the bound of Titsias (2009), as a sum over rows, at the given parameters."""

    def __init__(self, task: Task, values: Values) -> None:
        gpflow.config.set_default_jitter(JITTER)
        data, self.kernel = (task.X, task.y[:, None]), Mixed(values)
        self.model = gpflow.models.SGPR(data, self.kernel, task.Z, noise_variance=values["sigma_eps2"])
        gpflow.set_trainable(self.model.inducing_variable, False)
        self.parameters = {name: getattr(self.kernel, name) for name in KERNEL}
        self.parameters["sigma_eps2"] = self.model.likelihood.variance
        self.variables = [p.unconstrained_variable for p in self.parameters.values()]
        self.compiled = tf.function(self._value_and_gradient)

    def put(self, values: Values) -> None:
        for name, parameter in self.parameters.items():
            parameter.assign(values[name])

    def values(self) -> dict[str, tf.Tensor]:
        return {name: tf.convert_to_tensor(p) for name, p in self.parameters.items()}

    def _value_and_gradient(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = self.model.training_loss()
        return loss, tape.gradient(loss, self.variables)

    def map_loss(self) -> tf.Tensor:
        return self.model.training_loss() + penalty(self.values(), tf.math.log)

    def evaluate(self) -> tuple[float, Values]:
        """The objective and its gradient by the parameters themselves."""
        loss, gradient = self.compiled()
        out = {}
        for (name, parameter), slope in zip(self.parameters.items(), gradient, strict=True):
            z = parameter.unconstrained_variable
            out[name] = float(slope / tf.exp(parameter.transform.forward_log_det_jacobian(z, 0)))
        return float(loss), out

    def minimise(self, trace: Trace) -> None:
        """GPflow's own L-BFGS, which is SciPy's over the unconstrained parameters, compiled."""
        optimiser = gpflow.optimizers.Scipy()
        trace.minimise(partial(optimiser.minimize, self.map_loss, self.variables, method="L-BFGS-B"))

    def map_value(self, values: Values) -> float:
        self.put(values)
        return float(np.asarray(tf.function(self.map_loss)()))
