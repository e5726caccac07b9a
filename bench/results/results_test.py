#!/usr/bin/env python3
"""Trains the programs of bench/results on small generated data, mostly files of the published forms,
in one process. The files are made from a known model, so a bound is known that an optimizer that does not
work, or features that are mixed up, would miss."""
import json
import math
import os
import random
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def area(pairs):
    """The area under the ROC curve of (score, label) pairs without equal scores."""
    ranked = sorted(pairs)
    positives = [rank for rank, (_, label) in enumerate(ranked, 1) if label]
    count = len(positives)
    return (sum(positives) - count * (count + 1) / 2) / (count * (len(ranked) - count))


def drawn(rng, logit):
    return rng.random() < 1 / (1 + math.exp(-logit))


class ResultsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.rng = random.Random(5)

    def file(self, name, lines):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        return path

    def run_program(self, program, train, test, *flags):
        """Returns the program's figures. Its counts must be right."""
        return self.run_with(program, "--train=" + self.file("train", train),
                             "--test=" + self.file("test", test), *flags)

    def run_with(self, program, *flags):
        command = [os.path.join(HERE, program), "--seed=3", *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1, done.stdout)
        figures = json.loads(lines[0])
        self.assertEqual(figures["result"], program)
        self.assertEqual(figures["steps"], figures["steps_expected"])
        self.assertEqual(figures["steps_counted"], figures["steps_expected"])
        self.assertEqual(figures["examples_counted"], figures["examples_expected"])
        return figures

    def census(self, weights, count):
        """Lines like a9a's, and the area under the curve of the model that made them."""
        lines, pairs = [], []
        for _ in range(count):
            ids = sorted(self.rng.sample(range(1, 124), 14))
            logit = sum(weights[i] for i in ids)
            label = drawn(self.rng, logit)
            pairs.append((logit, label))
            lines.append("%s1 %s" % ("+" if label else "-", " ".join("%d:1" % i for i in ids)))
        return lines, area(pairs)

    def test_a9a_comes_near_to_the_model_that_made_the_labels(self):
        weights = [self.rng.gauss(0, 0.5) for _ in range(124)]
        train, _ = self.census(weights, 6000)
        test, best = self.census(weights, 3000)
        figures = self.run_program("a9a", train, test, "--epochs=5", "--last_epochs=3", "--l2=0.1")
        self.assertGreater(best, 0.85)
        self.assertGreater(figures["auc"], best - 0.02)
        self.assertLess(figures["auc"], best + 0.01)
        self.assertLess(figures["log_loss"], 0.5)
        self.assertEqual(figures["examples_expected"], 8 * 6000)

    def test_a_fold_measures_a_fifth_of_the_training_set_and_no_line_of_the_test_set(self):
        weights = [self.rng.gauss(0, 0.5) for _ in range(124)]
        train, _ = self.census(weights, 1000)
        figures = self.run_program("a9a", train, ["not a line"], "--fold=4", "--epochs=2",
                                   "--last_epochs=1")
        self.assertEqual(figures["examples_expected"], 3 * 800)
        self.assertGreater(figures["auc"], 0.7)

    def incomes(self, effects, count):
        """Lines like Adult's: the age, the education and a cross of it with the occupation count."""
        lines, pairs = [], []
        for _ in range(count):
            age, school = self.rng.randrange(17, 80), self.rng.randrange(8)
            job, hours = self.rng.randrange(6), self.rng.randrange(10, 60)
            logit = effects[school] + effects[(school, job)] + 0.03 * (age - 45)
            label = drawn(self.rng, logit)
            pairs.append((logit + 1e-9 * self.rng.random(), label))
            lines.append("%d, Private, 1%05d, School-%d, %d, Single, Job-%d, Husband, White, Male, 0, "
                         "0, %d, Peru, %s" % (age, self.rng.randrange(10 ** 5), school, school, job,
                                              hours, ">50K" if label else "<=50K"))
        return lines, area(pairs)

    def test_adult_finds_categories_numbers_and_crosses(self):
        effects = {school: self.rng.gauss(0, 1.5) for school in range(8)}
        effects.update(((school, job), self.rng.gauss(0, 1.5))
                       for school in range(8) for job in range(6))
        train, _ = self.incomes(effects, 20000)
        test, best = self.incomes(effects, 3000)
        figures = self.run_program("adult", train, [line + "." for line in test], "--epochs=2")
        self.assertGreater(best, 0.85)
        self.assertGreater(figures["auc"], best - 0.04)
        self.assertLess(figures["auc"], best + 0.01)

    def test_movielens_comes_near_to_the_noise_of_planted_ratings(self):
        tastes = [[self.rng.gauss(0, 0.8) for _ in range(3)] for _ in range(150)]
        films = [[self.rng.gauss(0, 0.8) for _ in range(3)] for _ in range(100)]
        pairs = self.rng.sample([(u, i) for u in range(150) for i in range(100)], 9000)
        lines = []
        for user, item in pairs:
            stars = 3 + sum(a * b for a, b in zip(tastes[user], films[item])) + tastes[user][0] / 2
            stars = min(5, max(1, stars + self.rng.gauss(0, 0.2)))
            lines.append("%d\t%d\t%.3f\t88125%04d" % (user + 1, item + 1, stars, len(lines)))
        figures = self.run_program("movielens", lines[:8000], lines[8000:], "--epochs=40",
                                   "--l2=0.02")
        # The deviation of the stars is 1, that of the noise 0.2.
        self.assertLess(figures["rmse"], 0.4)
        self.assertGreater(figures["rmse"], 0.15)

    def test_gowalla_finds_the_places_of_a_users_group(self):
        seen, wanted = [], []
        for user in range(200):
            group = list(range(user % 10 * 40, user % 10 * 40 + 40))
            self.rng.shuffle(group)
            seen.append("%d %s" % (user, " ".join(map(str, group[:15]))))
            wanted.append("%d %s" % (user, " ".join(map(str, group[15:20]))))
        figures = self.run_program("gowalla", seen, wanted, "--batch_size=128", "--epochs=30")
        # 20 of the 25 unseen places of the group; 20 of all 400 would give 0.05.
        self.assertGreater(figures["recall"], 0.6)
        figures = self.run_program("gowalla", seen, [], "--batch_size=128", "--epochs=1", "--fold=0")
        self.assertEqual(figures["examples_expected"], 200 * 12)

    def test_dlrm_comes_near_to_its_planted_model_and_counts_odd_batches(self):
        figures = self.run_with("dlrm", "--clicks=60100", "--test_clicks=5000",
                                "--batch_size=500")
        self.assertEqual(figures["steps_expected"], 121)
        self.assertEqual(figures["examples_expected"], 60100)
        self.assertGreater(figures["ceiling"], 0.75)
        self.assertGreater(figures["auc_of_ceiling"], 0.75)  # guessing reaches 0.6
        self.assertLess(figures["auc_of_ceiling"], 1)
        self.assertGreater(figures["examples_per_core"], 0)

    def topics(self, lines):
        """Lines of words of one topic each."""
        return [" ".join("topic%dword%d" % (topic, self.rng.randrange(8)) for _ in range(6))
                for topic in (self.rng.randrange(4) for _ in range(lines))]

    def test_word2vec_finds_topics_with_a_growing_vocabulary_as_with_a_fixed_one(self):
        figures = self.run_program("word2vec", self.topics(3000), self.topics(300),
                                   "--batch_size=256", "--epochs=3", "--window=2")
        # A line of six words has 18 pairs within a window of 2.
        self.assertEqual(figures["examples_expected"], 3 * 3000 * 18)
        # Guessing among the contexts of other words reaches log(249) = 5.5, the best model about
        # log(57) = 4.0, since a word of its topic may be in 56 other pairs.
        self.assertLess(figures["loss"], 4.4)
        self.assertAlmostEqual(figures["loss_over_fixed"], 1, delta=0.02)
        self.assertGreater(figures["neighbours_of_topic"], 0.95)

    def test_a_text_without_words_ends_word2vec_with_an_error(self):
        done = subprocess.run([os.path.join(HERE, "word2vec"),
                               "--train=" + self.file("train", ["...", ""]),
                               "--test=" + self.file("test", ["a b"])], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("none of 0 distinct tokens", done.stdout)

    def test_a_missing_file_ends_a_program_with_its_name(self):
        for program in ("a9a", "adult", "movielens", "gowalla", "word2vec"):
            done = subprocess.run([os.path.join(HERE, program), "--train=/nowhere/train",
                                   "--test=/nowhere/test"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, universal_newlines=True)
            self.assertEqual(done.returncode, 66, done.stdout)
            self.assertIn("/nowhere/train", done.stdout)


if __name__ == "__main__":
    unittest.main()
