"""Models: blocks stacked between an embedding and a head. Shapes: K pack, B batch, T tokens, D width, V vocabulary."""
