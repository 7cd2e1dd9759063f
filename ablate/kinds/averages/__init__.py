"""The kinds of weight average, one file each: the weight of each step in the average."""
