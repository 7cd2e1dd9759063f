"""The kinds of residual, one file each: its Spec, its Module, its cost, its equation and its paper.

Shapes: K pack, B batch, T tokens, D width.
"""
