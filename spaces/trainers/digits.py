"""A classifier of scikit-learn, which knows nothing of ablate: it writes one JSON object at the end."""

import argparse
import json

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
for name, default in {"trees": 40, "depth": 12, "features": 8, "seed": 0}.items():
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--bootstrap", choices=["yes", "no"], default="yes")
parser.add_argument("--out", required=True)
given = parser.parse_args()

images, labels = load_digits(return_X_y=True)
split = train_test_split(images, labels, test_size=0.5, random_state=given.seed)  # all variants of a seed share it
train, rest, train_labels, rest_labels = split
half = len(rest) // 2
model = RandomForestClassifier(
    given.trees,
    max_depth=given.depth,
    max_features=given.features,
    bootstrap=given.bootstrap == "yes",
    random_state=given.seed,
)
model.fit(train, train_labels)
scores = {
    "val_accuracy": model.score(rest[:half], rest_labels[:half]),
    "test_accuracy": model.score(rest[half:], rest_labels[half:]),
}
with open(f"{given.out}/results.json", "w") as file:
    json.dump(scores, file)
