#!/usr/bin/env python3
"""Tests every rule of layering.py on a small tree that breaks it, and on one that does not."""
import os
import tempfile
import unittest

import layering


def findings(files):
    """(file, line, rule) of each finding in a tree made of `files`: {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return [finding[:3] for finding in layering.Tree(root).check()]


def includes(*names):
    return "".join('#include "%s"\n' % name for name in names)


class OrderTest(unittest.TestCase):
    def test_a_clean_tree_passes(self):
        self.assertEqual([], findings({
            "divvy.h": includes("train/model.h", "tensor/tensor.h"),
            "base/clock.h": "#include <chrono>\n",
            "tensor/tensor.h": includes("base/clock.h"),
            "data/dataset.h": includes("tensor/tensor.h"),
            "ops/cpu/matmul.cc": "#include <cblas.h>\n" + includes("ops/cpu/loops.h"),
            "ops/cpu/loops.h": "",
            "train/model.h": includes("strategy/step.h", "data/dataset.h"),
            "strategy/step.h": includes("ops/cpu/loops.h", "protocol/ids.h"),
            "protocol/ids.h": includes("base/clock.h"),
            "worker/core/worker_core.h": includes("strategy/step.h"),
            "worker/core/worker_core_test.cc": includes("worker/core/testing/script.h", "strategy/testing/map.h"),
            "worker/core/testing/script.h": includes("worker/core/worker_core.h"),
            "strategy/testing/map.h": "",
            "ps_server/service/commit.cc": "#include <grpcpp/grpcpp.h>\n" + includes("rpc/server.h", "proto/ps.grpc.pb.h"),
            "rpc/server.h": includes("wire/frame.h"),
            "wire/frame.h": includes("proto/ps.pb.h"),
            "program/main.h": includes("worker/core/worker_core.h", "ps_server/service/handlers.h"),
            "examples/digits.cc": includes("divvy.h"),
        }))

    def check(self, path, *names):
        """Checks that only the last of the includes is wrong."""
        self.assertEqual([(path, len(names), "order")], findings({path: includes(*names)}))

    def test_an_upward_include_is_caught_with_its_line(self):
        self.check("tensor/tensor.h", "base/clock.h", "ops/var.h")

    def test_base_includes_nothing_of_ours(self):
        self.check("base/clock.cc", "tensor/dtype.h")

    def test_folders_in_braces_do_not_use_each_other(self):
        self.check("optimizers/adam.cc", "optimizers/optimizer.h", "initializers/initializer.h")

    def test_the_cluster_uses_pure_families_but_neither_ops_nor_data(self):
        self.check("variables/layout.h", "partitioners/div.h", "data/dataset.h")
        self.check("variables/layout.h", "optimizers/optimizer.h", "ops/var.h")

    def test_strategy_does_not_know_training(self):
        self.check("strategy/strategy.h", "ops/var.h", "data/dataset.h", "train/model.h")

    def test_a_parameter_server_knows_neither_strategy_nor_ops_nor_data(self):
        for name in ["strategy/step.h", "ops/var.h", "data/dataset.h"]:
            self.check("ps_server/core/shard.h", "variables/layout.h", name)

    def test_cores_know_no_network(self):
        for core in ["ps_server/core", "worker/core", "coordinator/core"]:
            for name in ["wire/frame.h", "rpc/server.h", "proto/ps.pb.h"]:
                self.assertIn((core + "/x.cc", 1, "order"), findings({core + "/x.cc": includes(name)}))

    def test_roles_do_not_know_each_other(self):
        self.check("worker/core/step.cc", "strategy/step.h", "coordinator/core/queue.h")

    def test_a_core_does_not_know_what_is_built_on_it(self):
        self.check("coordinator/core/queue.h", "coordinator/core/store.h", "coordinator/report/reporter.h")

    def test_only_tests_benches_and_examples_stand_above_the_program(self):
        self.check("train/trainer.h", "train/model.h", "program/main.h")
        self.check("program/main.cc", "program/main.h", "bench/bench.h")

    def test_a_system_include_counts_as_well(self):
        self.assertEqual([("base/a.h", 1, "order")], findings({"base/a.h": "#  include <ops/var.h>\n"}))

    def test_an_include_of_a_neighbour_without_its_folder_is_resolved(self):
        self.assertEqual([], findings({"base/a.h": includes("b.h"), "base/b.h": ""}))
        self.assertEqual([("base/a.h", 1, "order")], findings({"base/a.h": includes("../ops/b.h"), "ops/b.h": ""}))

    def test_a_folder_without_a_place_is_caught(self):
        self.assertEqual([("stray/a.h", 1, "order")], findings({"stray/a.h": ""}))

    def test_a_cycle_within_a_folder_is_caught_once(self):
        self.assertEqual([("base/c.h", 1, "order")], findings({
            "base/a.h": includes("base/b.h"), "base/b.h": includes("base/c.h"), "base/c.h": includes("base/a.h")}))

    def test_two_ways_to_one_header_are_no_cycle(self):
        self.assertEqual([], findings({"base/a.h": includes("base/b.h", "base/c.h"), "base/b.h": includes("base/c.h"), "base/c.h": ""}))


class TestingTest(unittest.TestCase):
    def test_product_code_may_not_use_fakes(self):
        self.assertEqual([("ops/tape.cc", 1, "testing")], findings({"ops/tape.cc": includes("ops/testing/map_reader.h")}))
        self.assertEqual([("bench/a.cc", 1, "testing")], findings({"bench/a.cc": includes("ops/testing/map_reader.h")}))

    def test_fakes_keep_to_the_order_of_their_folder(self):
        self.assertEqual([("ops/testing/a.h", 1, "order")], findings({"ops/testing/a.h": includes("strategy/testing/map.h")}))


class LibraryTest(unittest.TestCase):
    def check(self, path, name):
        self.assertEqual([(path, 1, "library")], findings({path: "#include <%s>\n" % name}))

    def test_grpc_stays_at_the_door(self):
        self.check("worker/core/a.cc", "grpcpp/grpcpp.h")
        self.check("wire/frame.cc", "grpc/slice.h")
        self.check("program/main.cc", "proto/ps.grpc.pb.h")

    def test_protobuf_stays_in_wire_and_rpc(self):
        self.check("protocol/ids.h", "google/protobuf/message.h")
        self.check("program/main.cc", "proto/ps.pb.h")

    def test_cuda_stays_in_its_backend(self):
        for name in ["cuda_runtime.h", "cublas_v2.h", "nccl.h", "cub/cub.cuh", "thrust/sort.h"]:
            self.check("ops/cpu/a.cc", name)
        self.assertEqual([], findings({"ops/cuda/a.cu": "#include <cuda_runtime.h>\n"}))

    def test_blas_stays_in_ops(self):
        self.check("ps_server/core/a.cc", "cblas.h")
        self.check("initializers/a.cc", "eigen3/Eigen/Dense")

    def test_spdlog_stays_in_one_file(self):
        self.check("base/clock.cc", "spdlog/spdlog.h")
        self.check("program/main.cc", "fmt/format.h")
        self.assertEqual([], findings({"base/log.cc": "#include <spdlog/spdlog.h>\n"}))

    def test_cores_use_no_lock_that_thread_sanitizer_cannot_see(self):
        self.check("coordinator/core/a.cc", "absl/synchronization/mutex.h")


class WorldTest(unittest.TestCase):
    def check(self, code, path="ops/a.cc", line=2):
        self.assertEqual([(path, line, "world")], findings({path: "\n%s\n" % code}), code)

    def pass_(self, code, path="ops/a.cc"):
        self.assertEqual([], findings({path: code}), code)

    def test_time(self):
        self.check("auto t = absl::Now();")
        self.check("auto t = std::chrono::steady_clock::now();")
        self.check("srand48(time(nullptr));")
        self.pass_("absl::Time t = clock.Now();")
        self.pass_("int64_t time = 0; step.time(nullptr);")

    def test_waiting(self):
        for code in ["std::this_thread::sleep_for(d);", "absl::SleepFor(d);", "usleep(10);", "sleep(1);", "nanosleep(&t, nullptr);"]:
            self.check(code)
        self.pass_("network.sleep(1);")

    def test_tests_and_benches_may_not_wait_either(self):
        for path in ["ops/a_test.cc", "base/a_test.cc", "tests/cluster/a_test.cc", "bench/a.cc"]:
            self.check("absl::SleepFor(d);", path)
        self.pass_("absl::SleepFor(d);", "base/clock.cc")

    def test_threads(self):
        self.check("std::thread t(f);")
        self.check("auto f = std::async(g);")
        self.check("std::thread t(f);", "ops/a_test.cc")
        self.pass_("auto id = std::this_thread::get_id();")
        self.pass_("std::thread t(f);", "base/executor.cc")

    def test_files(self):
        for code in ["FILE* f = fopen(p, q);", "std::ifstream in(p);", "std::ofstream out(p);", "std::filesystem::path p;", "int fd = ::open(p, 0);"]:
            self.check(code)
        self.pass_("auto f = files.open(p); files.fopen(p); Files::open(p);")
        self.pass_("std::ifstream in(p);", "tests/conformance/golden.cc")

    def test_randomness(self):
        for code in ["std::random_device d;", "std::mt19937 g(1);", "std::mt19937_64 g;", "int r = rand();", "absl::BitGen g;"]:
            self.check(code)
        self.pass_("float strand(int); x.rand(); auto operand = operand(1);")

    def test_comments_and_strings_do_not_count(self):
        self.pass_('// absl::Now()\n/* std::thread\n fopen( */ const char* s = "rand()"; const char* r = R"x(absl::SleepFor("a"))x";\n')
        self.pass_("char quote = '\"'; int64_t big = 10'000; // '\n")
        self.check("char quote = '\"'; auto t = absl::Now(); // \"")
        self.check("int64_t big = 10'000; auto t = absl::Now(); char c = 'x';")

    def test_lines_after_a_long_comment_are_right(self):
        self.check("/* one\n two */\nauto t = absl::Now();", line=4)


class LockTest(unittest.TestCase):
    @staticmethod
    def fields(count, indent="  "):
        return "".join("%sstd::map<int, int> f%d_ DIVVY_GUARDED_BY(mu_){};\n" % (indent, i) for i in range(count))

    def test_twenty_guarded_fields_are_the_most(self):
        code = "class DIVVY_CAPABILITY A final : public B<C> {\n void F() { if (x) { y(); } }\n%s};\n"
        self.assertEqual([], findings({"base/a.h": code % self.fields(20)}))
        self.assertEqual([("base/a.h", 1, "lock")], findings({"base/a.h": code % self.fields(21)}))

    def test_two_fields_of_one_declaration_are_two(self):
        pairs = "  int a_ DIVVY_GUARDED_BY(mu_) = 0, b_ DIVVY_GUARDED_BY(mu_) = 0;\n"
        self.assertEqual([("base/a.cc", 2, "lock")], findings({"base/a.cc": "\nstruct Outer::A {\n%s};\n" % (pairs * 11)}))

    def test_a_field_belongs_to_the_innermost_class(self):
        code = "class A {\n struct B {\n%s };\n%s};\nclass C {\n%s};\n"
        self.assertEqual([], findings({"base/a.h": code % (self.fields(20), self.fields(20), self.fields(20))}))
        self.assertEqual([("base/a.h", 2, "lock")], findings({"base/a.h": code % (self.fields(21), self.fields(20), "")}))

    def test_fakes_count_as_well(self):
        self.assertEqual([("base/testing/a.h", 1, "lock")], findings({"base/testing/a.h": "class A {\n%s};\n" % self.fields(21)}))

    def test_the_analysis_is_switched_off_in_five_places_at_most(self):
        define = "#define DIVVY_NO_THREAD_SAFETY_ANALYSIS __attribute__((x))\n// DIVVY_NO_THREAD_SAFETY_ANALYSIS\n"
        use = "void F%d() DIVVY_NO_THREAD_SAFETY_ANALYSIS;\n"
        files = {"base/mutex.h": define, "base/a.h": "".join(use % i for i in range(5)), "base/a_test.cc": use % 1, "base/testing/a.h": use % 2}
        self.assertEqual([], findings(files))
        self.assertEqual([("base/a.h", line, "lock") for line in range(1, 6)] + [("base/b.h", 1, "lock")], findings({**files, "base/b.h": use % 6}))


class WidthTest(unittest.TestCase):
    def test_a_hundred_columns_are_the_most(self):
        self.assertEqual([], findings({"base/a.h": "x" * 100 + "\n// " + "y" * 97 + "\n"}))
        self.assertEqual([("base/a.h", 2, "width"), ("base/a.h", 3, "width")],
                         findings({"base/a.h": "\n" + "x" * 101 + "\n// " + "y" * 98 + "\n"}))

    def test_a_string_may_be_longer(self):
        text = 'const char* a = "%s";\nconst char* b = R"(\n%s\n)";\n' % ("z" * 100, "z " * 60)
        self.assertEqual([], findings({"base/a.cc": text}))


if __name__ == "__main__":
    unittest.main()
