"""Decoding from the logits of the next token: greedy, sampling, beam search."""
