"""What is done with trained models: their weights, and the text that they write."""
