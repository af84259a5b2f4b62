"""Every table of the paper again: published, under its own protocol, and under the sound default."""
