"""How one block's kernel matrices and conditionals are computed, and differentiated.

`native` runs closed-form kernels on the CPU (BLAS and Numba, float64); `xla` runs any kernel on
whatever device JAX finds. Both offer the same six operations, see `widegp.compute.backend`.
"""
