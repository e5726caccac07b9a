"""The examples with PyTorch."""
import gzip
import random

import pytest

from run_example import figures, run

RANDOM = random.Random(7)
EFFECTS = {(school, job): RANDOM.gauss(0, 1.5) for school in range(8) for job in range(6)}


def people(count):
    """Lines like Adult's. Age, education and a cross of it with the occupation count."""
    for _ in range(count):
        age, school, job = RANDOM.randrange(17, 80), RANDOM.randrange(8), RANDOM.randrange(6)
        rich = RANDOM.gauss(0, 1) < EFFECTS[school, job] + 0.03 * (age - 45)
        yield ("%d, Private, 1%05d, School-%d, %d, Single, Job-%d, Husband, White, Male, 0, 0, "
               "40, Peru, %s" % (age, RANDOM.randrange(10**5), school, school, job,
                                 ">50K" if rich else "<=50K"))


@pytest.fixture(name="adult")
def make_adult(tmp_path):
    with gzip.open(tmp_path / "adult.data.gz", "wt") as data:
        data.writelines(line + "\n" for line in people(8000))
    lines = ["|1x3 Cross validator"] + [line + "." for line in people(1000)] + [""]
    (tmp_path / "adult.test").write_text("\n".join(lines))
    return str(tmp_path)


def test_adult_finds_categories_numbers_and_crosses_as_a_cluster_whose_workers_are_killed(adult):
    output = run("adult_torch", adult,
                 launch=["--ps=2", "--workers=2", "--chaos=5s", "--max_restarts=50"])
    assert figures("63 steps; test: auc", output)[0] > 0.75  # 8,000 people in batches of 128


def test_adult_without_data_says_what_is_missing(tmp_path):
    with pytest.raises(AssertionError, match="usage: adult_torch.py DIR"):
        run("adult_torch")
    with pytest.raises(AssertionError, match=r"adult\.data"):
        run("adult_torch", str(tmp_path))


def test_matrix_factorization_comes_near_to_the_noise():
    rmse = figures("held out: rmse", run("matrix_factorization_torch"))
    assert len(rmse) == 10
    assert 0.49 < rmse[-1] < 0.56


def test_matrix_factorization_reads_a_file(tmp_path):
    lines = ["%d\t%d\t%d\t0" % (user, film, 1 + (user + film) % 5)
             for user in range(1, 21) for film in range(1, 11)]
    (tmp_path / "u.data").write_text("\n".join(lines))
    assert len(figures("rmse", run("matrix_factorization_torch", str(tmp_path / "u.data")))) == 10


def test_dlrm_finds_the_pairs():
    assert figures("held out: auc", run("dlrm_torch"))[0] > 0.64
