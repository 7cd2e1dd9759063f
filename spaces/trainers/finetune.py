"""A script around `transformers.Trainer`, which knows nothing of ablate: its state has the curve."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--weight_decay", type=float, default=0.0)
parser.add_argument("--warmup_steps", type=int, default=10)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--output_dir", required=True)
given = parser.parse_args()


class Sums(torch.utils.data.Dataset):
    """Sequences in which each token is the sum of the two before it, modulo 17: all that a model has to learn."""

    def __init__(self, rows: int, seed: int) -> None:
        drawn = torch.randint(0, 17, (rows, 2), generator=torch.Generator().manual_seed(seed))
        tokens = [drawn[:, 0], drawn[:, 1]]
        while len(tokens) < 16:
            tokens.append((tokens[-1] + tokens[-2]) % 17)
        self.tokens = torch.stack(tokens, dim=1)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[row], "labels": self.tokens[row]}


torch.manual_seed(given.seed)
model = GPT2LMHeadModel(GPT2Config(vocab_size=17, n_positions=16, n_embd=32, n_layer=given.layers, n_head=2))
arguments = TrainingArguments(
    output_dir=given.output_dir,
    learning_rate=given.lr,
    weight_decay=given.weight_decay,
    warmup_steps=given.warmup_steps,
    max_steps=given.steps,
    per_device_train_batch_size=32,
    eval_strategy="steps",
    eval_steps=25,
    logging_steps=25,
    save_strategy="no",
    report_to=[],
    seed=given.seed,
    use_cpu=not torch.cuda.is_available(),
)
trainer = Trainer(model, arguments, train_dataset=Sums(2000, given.seed), eval_dataset=Sums(256, 10_000))
trainer.train()
trainer.save_state()
