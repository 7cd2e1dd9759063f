"""The kinds of mixer: its Spec, its Module, its cost, its equation and its paper.

A new file here is a new kind; nothing else is edited. Shapes: K pack, B batch, T tokens, D width, H heads,
d_h head width.
"""
