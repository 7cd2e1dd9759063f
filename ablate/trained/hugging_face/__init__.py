"""Models of `transformers` as ours and back: `config.json` to the model section of a space, tensors by a map of names.

`checkpoint.py` reads a folder; `architectures/` has the models that can be read, discovered by their
`model_type`.
"""
