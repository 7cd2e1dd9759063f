"""Measure a language model on tasks that it was not trained for: likelihoods of texts, and EleutherAI's harness."""
