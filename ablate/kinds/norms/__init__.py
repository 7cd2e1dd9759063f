"""The kinds of norm, one file each: its Spec, its Module, its cost, its equation and its paper.

Shapes: K pack, D width.
"""
