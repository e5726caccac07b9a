#include "ops/cuda/gpus.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kLibraries = "ops/cuda/testing/";

GpuChoice Choice(absl::string_view text) {
  GpuChoice choice;
  std::string error;
  EXPECT_TRUE(AbslParseFlag(text, &choice, &error)) << text << ": " << error;
  return choice;
}

TEST(GpuChoiceTest, IsAutoAllNoneOrNumbers) {
  for (const char* text : {"auto", "all", "none", "0", "3,0,12"})
    EXPECT_EQ(AbslUnparseFlag(Choice(text)), text);
  EXPECT_THAT(Choice("2,0").listed, ElementsAre(2, 0));
}

TEST(GpuChoiceTest, RefusesNonsense) {
  for (const char* text : {"", "some", "0,", ",1", "-1", "1,1", "0 2", "0x1", "99999999999"}) {
    GpuChoice choice;
    std::string error;
    EXPECT_FALSE(AbslParseFlag(text, &choice, &error)) << text;
    EXPECT_THAT(error, HasSubstr("wanted auto, all, none, or numbers of GPUs"));
  }
}

// ---- the library, and problems with it --------------------------------------------------------

absl::Status LoadError(const std::string& path) { return internal::LoadDeviceMath(path).status(); }

TEST(LoadDeviceMathTest, SaysThatThereIsNone) {
  const absl::Status none = LoadError("");
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.message(),
              HasSubstr("build it with --config=cuda, or name it in DIVVY_CUDA_LIBRARY"));
}

TEST(LoadDeviceMathTest, SaysWhatTheLoaderMisses) {
  const absl::Status error = LoadError(kLibraries + "libmissing_part.so");
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* part : {"libmissing_part.so", "it needs CUDA's own libraries",
                           "a_part_of_cuda_that_is_not_there"}) {
    EXPECT_THAT(error.message(), HasSubstr(part));
  }
  const absl::Status nowhere = LoadError(kLibraries + "libnowhere.so");
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(nowhere.message(),
              HasSubstr("libnowhere.so: there is no such file; give the path of libdivvy_cuda.so"));
}

// A user who may write there could have put the library there. Its code would run as this user,
// even with --gpus=auto, which is the default.
TEST(LoadDeviceMathTest, RefusesALibraryThatOthersMayHavePutThere) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/drop_box"),
                    library = absl::StrCat(folder, "/libdivvy_cuda.so");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  std::filesystem::copy_file(kLibraries + "libno_door.so", library);
  const auto load = [&](mode_t folder_mode, mode_t library_mode) {
    EXPECT_EQ(chmod(folder.c_str(), folder_mode), 0);
    EXPECT_EQ(chmod(library.c_str(), library_mode), 0);
    return std::string(LoadError(library).message());
  };
  EXPECT_THAT(load(0755, 0755), HasSubstr("is not Divvy's"));  // what its code says
  EXPECT_THAT(load(01777, 0755),
              HasSubstr("can be written by others; take another, or chmod go-w"));
  EXPECT_THAT(load(0770, 0755), HasSubstr("can be written by others"));
  EXPECT_THAT(load(0755, 0777), HasSubstr("can be written by others"));
  const std::string link = absl::StrCat(testing::TempDir(), "/libdivvy_cuda.so");
  std::filesystem::create_symlink(library, link);
  EXPECT_EQ(chmod(folder.c_str(), 01777), 0);
  EXPECT_THAT(LoadError(link).message(), HasSubstr("can be written by others")) << "through a link";
  if (chown(library.c_str(), 12345, static_cast<gid_t>(-1)) == 0)
    EXPECT_THAT(load(0755, 0755), HasSubstr("belongs to user 12345"));
}

TEST(LoadDeviceMathTest, RefusesAnotherLibraryAndAnotherVersion) {
  EXPECT_THAT(LoadError(kLibraries + "libno_door.so").message(),
              HasSubstr("is not Divvy's: it has no divvy_open_device_math"));
  setenv("DIVVY_HOST_DEVICES_VERSION", "1000000", 1);
  EXPECT_THAT(LoadError(kLibraries + "libdivvy_host_devices.so").message(),
              HasSubstr("is of another version"));
  unsetenv("DIVVY_HOST_DEVICES_VERSION");
}

// ---- the machine's devices ----------------------------------------------------------------------

// Runs `body` in a process of its own, because a process opens its GPUs once. Returns 0 if `body`
// has found no failure.
template <typename Body>
int InProcess(const char* devices, Body body) {
  setenv("DIVVY_CUDA_LIBRARY", (kLibraries + "libdivvy_host_devices.so").c_str(), 1);
  setenv("DIVVY_HOST_DEVICES", devices, 1);
  body();
  return ::testing::Test::HasFailure() ? 1 : 0;
}
#define EXPECT_IN_PROCESS(devices, ...) \
  EXPECT_EXIT(std::_Exit(InProcess(devices, __VA_ARGS__)), ::testing::ExitedWithCode(0), "")

absl::StatusOr<Gpus> Open(absl::string_view choice, int64_t memory_bytes = 0) {
  return OpenGpus({Choice(choice), memory_bytes, {}});
}

class OpenGpusTest : public ::testing::Test {
 protected:
  OpenGpusTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(OpenGpusTest, TakesAllThatThereAre) {
  EXPECT_IN_PROCESS("3", [] {
    const absl::StatusOr<Gpus> gpus = Open("auto");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    EXPECT_THAT(gpus->names, ElementsAre("host device 0", "host device 1", "host device 2"));
    const absl::StatusOr<Tensor> there = Tensor::Vector<float>({1, 2}).To(gpus->devices[2]);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->device().ToString(), "GPU:2");
    EXPECT_EQ(Open("auto")->devices.size(), 3u);
    EXPECT_THAT(Open("none")->devices, IsEmpty());
    EXPECT_THAT(Open("0").status().message(),
                HasSubstr("already computes on GPUs, which were opened with --gpus=auto"));
  });
}

TEST_F(OpenGpusTest, AutoLeavesOutADeviceThatIsIllAndAllDoesNot) {
  EXPECT_IN_PROCESS("3", [] {
    setenv("DIVVY_HOST_DEVICES_SICK", "1", 1);
    EXPECT_THAT(Open("all").status().message(),
                HasSubstr("--gpus=all: this emulated device cannot be used"));
    EXPECT_THAT(Open("1").status().message(), HasSubstr("cannot be used"));
    const absl::StatusOr<Gpus> gpus = Open("auto");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    EXPECT_THAT(gpus->names, ElementsAre("host device 0", "host device 2"));
  });
}

TEST_F(OpenGpusTest, WhereThereMayBeSeveralEverythingIsLoadedAtTheStart) {
  EXPECT_IN_PROCESS("2", [] {
    ASSERT_TRUE(Open("0").ok());
    EXPECT_EQ(std::getenv("CUDA_MODULE_LOADING"), nullptr) << "a single GPU waits for no other";
  });
  EXPECT_IN_PROCESS("2", [] {
    setenv("NCCL_RUNTIME_CONNECT", "1", 1);
    ASSERT_TRUE(Open("0,1").ok());
    EXPECT_STREQ(std::getenv("CUDA_MODULE_LOADING"), "EAGER");
    EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "1") << "the user's setting is kept";
  });
}

// A tensor fills a device and is freed.
void FillAndFree() {
  setenv("DIVVY_HOST_DEVICE_BYTES", "1024", 1);
  ASSERT_TRUE(Open("all").ok());
  ASSERT_TRUE(Tensor::Uninitialized(DType::kFloat32, Shape{200}, {Device::Kind::kGpu, 0}).ok());
}

// Whether the device has that memory again. Asks the library directly.
bool HasItAgain() {
  cuda::DeviceMath& math = **internal::LoadDeviceMath(std::getenv("DIVVY_CUDA_LIBRARY"));
  void* const data = math.Allocate(0, 800);
  if (data != nullptr) math.Free(0, data);
  return data != nullptr;
}

TEST_F(OpenGpusTest, FreedMemoryIsKeptUnlessPlainMemoryIsAskedFor) {
  EXPECT_IN_PROCESS("1", [] {
    FillAndFree();
    EXPECT_FALSE(HasItAgain());
  });
  EXPECT_IN_PROCESS("1", [] {
    setenv("DIVVY_GPU_PLAIN_MEMORY", "1", 1);
    FillAndFree();
    EXPECT_TRUE(HasItAgain()) << "otherwise compute-sanitizer does not see the ends of blocks";
  });
}

TEST_F(OpenGpusTest, KeptMemoryIsGivenBackWhereSomebodyAsks) {
  EXPECT_IN_PROCESS("1", [] {
    TrimGpuMemory();  // nothing is cached yet
    FillAndFree();
    TrimGpuMemory();
    EXPECT_TRUE(HasItAgain());
  });
}

TEST_F(OpenGpusTest, NumbersThoseChosenAnew) {
  EXPECT_IN_PROCESS("3", [] {
    const absl::StatusOr<Gpus> gpus = Open("2,0");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    EXPECT_THAT(gpus->names, ElementsAre("host device 2", "host device 0"));
    EXPECT_EQ(gpus->devices[1].ToString(), "GPU:1");
    EXPECT_EQ(Tensor::Vector<float>({1}).To({Device::Kind::kGpu, 2}).status().message(),
              "there is no GPU:2: this process uses 2 GPUs");
  });
}

TEST_F(OpenGpusTest, NamesTheDevicesWhereOneAskedForIsNone) {
  EXPECT_IN_PROCESS("2", [] {
    const absl::Status status = Open("0,7").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "--gpus=0,7: this machine has no GPU 7, only 0 (host device 0), 1 (host device 1)");
  });
}

TEST_F(OpenGpusTest, WithoutADeviceAutoComputesOnTheCpuAndAllFails) {
  EXPECT_IN_PROCESS("0", [] {
    const absl::StatusOr<Gpus> gpus = Open("auto");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    EXPECT_THAT(gpus->devices, IsEmpty());
    EXPECT_THAT(gpus->why_none, HasSubstr("libdivvy_host_devices.so: the host emulates no device"));
    EXPECT_EQ(Open("all").status().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST_F(OpenGpusTest, WithoutALibraryAutoSaysNothing) {
  EXPECT_IN_PROCESS("2", [] {
    unsetenv("DIVVY_CUDA_LIBRARY");
    const absl::StatusOr<Gpus> gpus = Open("auto");
    ASSERT_TRUE(gpus.ok()) << gpus.status();
    EXPECT_THAT(gpus->devices, IsEmpty());
    EXPECT_THAT(gpus->why_none, IsEmpty());
    EXPECT_EQ(Open("0").status().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST_F(OpenGpusTest, RefusesALimitBelowNothing) {
  EXPECT_EQ(
      Open("none", -1).status(),
      absl::InvalidArgumentError("--gpu_memory_bytes is -1, wanted at least 0 (0: no limit)"));
}

TEST_F(OpenGpusTest, AGpuGivesTensorsNoMoreThanItsLimit) {
  EXPECT_IN_PROCESS("2", [] {
    ASSERT_TRUE(Open("all", 1024).ok());
    const Device first{Device::Kind::kGpu, 0}, second{Device::Kind::kGpu, 1};
    absl::StatusOr<Tensor> most = Tensor::Uninitialized(DType::kFloat32, Shape{200}, first);
    ASSERT_TRUE(most.ok()) << most.status();
    const absl::Status beyond = Tensor::Uninitialized(DType::kFloat32, Shape{57}, first).status();
    EXPECT_EQ(beyond.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(
        beyond.message(),
        HasSubstr("tensors have 800 bytes, and 228 more would exceed --gpu_memory_bytes=1024"));
    EXPECT_TRUE(Tensor::Uninitialized(DType::kFloat32, Shape{57}, second).ok());
    *most = Tensor();
    EXPECT_TRUE(Tensor::Uninitialized(DType::kFloat32, Shape{256}, first).ok());
  });
}

TEST_F(OpenGpusTest, WhatADeviceCouldNotGiveDoesNotCount) {
  EXPECT_IN_PROCESS("1", [] {
    setenv("DIVVY_HOST_DEVICE_BYTES", "512", 1);
    ASSERT_TRUE(Open("all", 4096).ok());
    const Device gpu{Device::Kind::kGpu, 0};
    for (int i = 0; i < 10; ++i) {
      EXPECT_THAT(Tensor::Uninitialized(DType::kFloat32, Shape{300}, gpu).status().message(),
                  HasSubstr("has no memory for 1200 bytes more"));
    }
    EXPECT_TRUE(Tensor::Uninitialized(DType::kFloat32, Shape{128}, gpu).ok());
  });
}

// ---- distribution among workers ----------------------------------------------------------------

std::string EachOf(absl::string_view choice, int num_gpus, int num_workers, int replicas = 0) {
  const absl::StatusOr<int> each = GpusPerWorker(Choice(choice), num_gpus, num_workers, replicas);
  return each.ok() ? absl::StrCat(*each) : std::string(each.status().message());
}

TEST(GpusPerWorkerTest, AreAsManyForEach) {
  EXPECT_EQ(EachOf("all", 4, 2), "2");
  EXPECT_EQ(EachOf("0,3", 2, 1, 2), "2");
  EXPECT_EQ(EachOf("none", 0, 3, 5), "0");
}

TEST(GpusPerWorkerTest, ThatWereAskedForAndDoNotGoRoundAreRefused) {
  EXPECT_EQ(EachOf("1,2,0", 3, 2),
            "--gpus=1,2,0: 3 GPUs cannot be divided evenly among 2 workers, which share none: "
            "choose the same number of GPUs for each worker, or another number of workers");
  EXPECT_THAT(EachOf("all", 2, 4), HasSubstr("2 GPUs cannot be divided evenly among 4 workers"));
}

TEST(GpusPerWorkerTest, AutoLeavesOverWhatDoesNotGoRound) {
  EXPECT_EQ(EachOf("auto", 5, 2), "2");
  EXPECT_EQ(EachOf("auto", 1, 2), "0");
  EXPECT_EQ(EachOf("auto", 1, 2, 3), "0");
}

TEST(GpusPerWorkerTest, AreAsManyAsReplicas) {
  EXPECT_THAT(EachOf("auto", 4, 2, 3), HasSubstr("replicas_per_worker is 3, but"));
}

std::vector<std::vector<std::string>> Dealt(absl::string_view choice, int replicas,
                                            int num_workers) {
  const auto workers = OpenReplicaDevices({Choice(choice), 0, {}}, replicas, num_workers);
  EXPECT_TRUE(workers.ok()) << workers.status();
  std::vector<std::vector<std::string>> names;
  for (const std::vector<Device>& devices : *workers) {
    names.emplace_back();
    for (const Device device : devices) names.back().push_back(device.ToString());
  }
  return names;
}

TEST_F(OpenGpusTest, AWorkerHasGpusThatNoOtherHas) {
  EXPECT_IN_PROCESS("4", [] {
    EXPECT_THAT(Dealt("all", 0, 2),
                ElementsAre(ElementsAre("GPU:0", "GPU:1"), ElementsAre("GPU:2", "GPU:3")));
  });
}

TEST_F(OpenGpusTest, WhereThereAreFewerThanWorkersAutoComputesOnTheCpuAndSaysSo) {
  const auto deal = [] { EXPECT_THAT(Dealt("auto", 2, 3), Each(ElementsAre("CPU:0", "CPU:0"))); };
  EXPECT_EXIT(std::_Exit(InProcess("2", deal)), ::testing::ExitedWithCode(0),
              "computing on the CPU: there are 2 GPUs for 3 workers, which share none");
}

TEST_F(OpenGpusTest, WhatAutoLeavesOverIsSaid) {
  const auto deal = [] {
    EXPECT_THAT(Dealt("auto", 0, 2), ElementsAre(ElementsAre("GPU:0"), ElementsAre("GPU:1")));
  };
  EXPECT_EXIT(std::_Exit(InProcess("3", deal)), ::testing::ExitedWithCode(0),
              "computing on 2 GPUs: host device 0, host device 1; 1 stay unused, since workers get "
              "equal numbers of GPUs");
}

}  // namespace
}  // namespace divvy
