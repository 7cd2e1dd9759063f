"""Writing with a model, token by token: greedy, sampled, by beam search. It knows next-token scores alone."""
