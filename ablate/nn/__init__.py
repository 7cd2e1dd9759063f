"""Modules with the pack axis K: layers (`pack`), numerical kernels (`kernels`), blocks and stacks (`model`)."""
