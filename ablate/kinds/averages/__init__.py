"""The kinds of weight average, one file each: how much the weights after each step weigh."""
