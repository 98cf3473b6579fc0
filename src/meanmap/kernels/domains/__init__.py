"""Kernels on points that are neither vectors nor labels, with one module per domain."""
