"""Kernels on points that are neither vectors nor labels, each domain in a file of its own."""
