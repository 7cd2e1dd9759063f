"""The kinds of position: its Spec, its Module, its cost, its equation and its paper.

Shapes: K pack, B batch, T tokens, D width, H heads, d_h head width.
"""
