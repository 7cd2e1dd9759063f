"""The kinds of norm: its Spec, its Module, its cost, its equation and its paper.

Shapes: K pack, D width.
"""
