"""The models of `transformers` that can be read, one file each: settings, and which tensor is which."""
