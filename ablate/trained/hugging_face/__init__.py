"""Models of `transformers` as ours and back: `config.json` to the model section of a space, tensors by a map of names.

`checkpoint.py` reads a folder; `architectures/` has one file for each model that can be read, discovered by its
`model_type`.
"""
