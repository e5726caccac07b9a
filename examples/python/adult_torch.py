"""Whose income is above 50,000 dollars: UCI's Adult. The wide part is linear in the categories and
their pairs, the deep part a perceptron of the categories' vectors and of the numbers. DIR has
adult.data and adult.test, or adult.*.gz, of archive.ics.uci.edu/dataset/2/adult:

    python3 examples/python/adult_torch.py DIR
"""
import sys
import torch
import divvy
import divvy.torch as dt

DIR = sys.argv.pop(1) if len(sys.argv) > 1 else sys.exit("usage: adult_torch.py DIR")
FIELDS = "age work weight school years marriage job family race sex gain loss hours country income"
NUMBERS = ["age", "weight", "years", "gain", "loss", "hours"]
WORDS = ["work", "school", "marriage", "job", "family", "race", "sex", "country"]
RICH = torch.tensor([divvy.text_key(text, "income") for text in (" >50K", " >50K.")])

wide = dt.Embedding("wide", 1, optimizer=divvy.Ftrl(0.1, l1=0.001), initializer=0.0)
deep = dt.Embedding("deep", 8, optimizer=divvy.Adagrad(0.2), initializer=divvy.RandomNormal(0, 0.1))
net = torch.nn.Sequential(torch.nn.BatchNorm1d(70), torch.nn.Linear(70, 64), torch.nn.ReLU(),
                          torch.nn.Linear(64, 1))
model = dt.Module("net", net, optimizer=divvy.Adam(3e-3))


def people(name):
    columns = [field if field in NUMBERS else divvy.Column(field, "string", salt=field)
               for field in FIELDS.split()]
    # The first line of UCI's adult.test is no record.
    return divvy.csv("%s/adult.%s*" % (DIR, name), columns).ignore_errors(1)


def predict(batch):
    numbers = torch.stack([batch[name] for name in NUMBERS], 1).log1p()
    words = torch.stack([batch[name] for name in WORDS], 1)
    pairs = words[:, [0, 1, 2]] * 31 + words[:, [2, 2, 3]]
    logits = model(torch.cat([numbers, deep(words).flatten(1)], 1))[:, 0]
    return logits + wide(torch.cat([words, pairs], 1)).sum((1, 2))


@dt.step
def train(batch):
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        predict(batch), torch.isin(batch["income"], RICH).float(), reduction="none")
    losses.mean().backward()
    return {"loss": losses}


@dt.step(read_only=True)
def test(batch):
    return {"auc": divvy.Auc(predict(batch), torch.isin(batch["income"], RICH))}


def main(c):
    c.restore_latest()
    while c.epoch < 1:
        c.run_epoch(train, people("data").shuffle(100_000).batch(128))
    metrics = c.run_epoch(test, people("test").batch(1024))
    print("%d steps; test: auc %.4f" % (c.step, metrics["auc"]))


if __name__ == "__main__":
    divvy.run(main)
