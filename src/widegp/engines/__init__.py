"""How sums over rows are made. An engine knows no kernels: it maps a function over blocks of rows."""
