"""How many stars a user gives to a film: biases, and the dot of a few factors. Without a file it
generates ratings with noise of 0.5, and no model's error is below that.

    python3 examples/python/matrix_factorization_torch.py [ml-100k/u.data]
"""
import sys
import numpy as np
import divvy
import divvy.torch as dt

FILE = sys.argv.pop(1) if sys.argv[1:] and sys.argv[1][0] != "-" else None
FACTORS = 4


def planted(count=40_000, users=300, films=400):
    draw = np.random.default_rng(1)
    user, film = draw.integers(users, size=count), draw.integers(films, size=count)
    bias = 0.4 * draw.normal(size=users)[user] + 0.4 * draw.normal(size=films)[film]
    factors = draw.normal(size=(users, FACTORS))[user] * draw.normal(size=(films, FACTORS))[film]
    stars = 3.5 + bias + 0.3 * factors.sum(axis=1) + 0.5 * draw.normal(size=count)
    return divvy.tensors({"user": user, "film": film, "stars": stars.astype(np.float32)})


COLUMNS = [divvy.Column("user", "int64"), divvy.Column("film", "int64"), "stars", "time"]
RATINGS = divvy.csv(FILE, COLUMNS, separator="\t") if FILE else planted()

# Any id has a row: a bias, and the factors.
RULE, FIRST = divvy.Adam(1e-2), divvy.RandomNormal(0, 0.1)
users = dt.Embedding("users", 1 + FACTORS, optimizer=RULE, initializer=FIRST)
films = dt.Embedding("films", 1 + FACTORS, optimizer=RULE, initializer=FIRST)


def predict(user, film):
    return 3.5 + user[:, 0] + film[:, 0] + (user[:, 1:] * film[:, 1:]).sum(1)


@dt.step
def train(batch):
    user, film = users(batch["user"]), films(batch["film"])
    errors = (predict(user, film) - batch["stars"])**2
    (errors + 0.02 * (user**2 + film**2).sum(1)).mean().backward()
    return {"error": errors}


@dt.step(read_only=True)
def test(batch):
    stars = predict(users(batch["user"]), films(batch["film"]))
    return {"rmse": divvy.Rmse(stars, batch["stars"])}


def main(c):
    c.restore_latest()
    while c.epoch < 10:
        c.run_epoch(train, RATINGS.hold_out(10, 0).shuffle(100_000).batch(512))
        rmse = c.run_epoch(test, RATINGS.shard(10, 0).batch(1024))["rmse"]
        print("epoch %d: held out: rmse %.3f" % (c.epoch, rmse))


if __name__ == "__main__":
    divvy.run(main)
