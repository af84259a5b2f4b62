"""What the default leaves to the table: metric, inputs, warp and noise, chosen on held-out training rows."""
