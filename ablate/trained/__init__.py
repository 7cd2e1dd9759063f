"""Uses of trained models: weights, transfer, evaluation and generated text."""
