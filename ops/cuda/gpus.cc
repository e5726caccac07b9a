#include "ops/cuda/gpus.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/path.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/trace_range.h"
#include "base/trusted_file.h"
#include "ops/backends.h"
#include "ops/collectives.h"
#include "ops/cuda/gpu_backend.h"
#include "tensor/device_memory.h"

#ifndef DIVVY_STATIC
#include <dlfcn.h>
#include <unistd.h>
#endif

namespace divvy {

// ---- the flag -----------------------------------------------------------------------------------

bool AbslParseFlag(absl::string_view text, GpuChoice* choice, std::string* error) {
  *choice = GpuChoice();
  for (const GpuChoice::Kind kind :
       {GpuChoice::Kind::kNone, GpuChoice::Kind::kAuto, GpuChoice::Kind::kAll}) {
    choice->kind = kind;
    if (text == AbslUnparseFlag(*choice)) return true;
  }
  choice->kind = GpuChoice::Kind::kListed;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int number = -1;
    const bool is_new = absl::SimpleAtoi(word, &number) && number >= 0 &&
                        std::count(choice->listed.begin(), choice->listed.end(), number) == 0;
    if (!is_new) {
      *error = "wanted auto, all, none, or numbers of GPUs, each once, as in 0,2";
      return false;
    }
    choice->listed.push_back(number);
  }
  return true;
}

std::string AbslUnparseFlag(const GpuChoice& choice) {
  switch (choice.kind) {
    case GpuChoice::Kind::kAuto: return "auto";
    case GpuChoice::Kind::kAll: return "all";
    case GpuChoice::Kind::kNone: return "none";
    default: return absl::StrJoin(choice.listed, ",");
  }
}

// ---- the library --------------------------------------------------------------------------------

namespace {

constexpr absl::string_view kLibrary = "libdivvy_cuda.so";

absl::Status NoLibrary() {
  return absl::NotFoundError(
      absl::StrCat("there is no ", kLibrary,
                   " beside this program: build it with --config=cuda, or name it in "
                   "DIVVY_CUDA_LIBRARY; --gpus=none computes on the CPU"));
}

absl::Status Unusable(absl::string_view library, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(library, ": ", why));
}

}  // namespace

#ifdef DIVVY_STATIC

absl::StatusOr<cuda::DeviceMath*> internal::LoadDeviceMath(const std::string& path) {
  if (path.empty()) return NoLibrary();
  return Unusable(path,
                  "this program is static and cannot load a library: use a build without "
                  "--config=static, or --gpus=none");
}

#else

namespace {

// The first of these that is a file: beside this code, or beside the executable. The two differ
// only if this code is libdivvy.so.
std::string LibraryBesideProgram() {
  std::vector<std::string> folders = {DirectoryOf(ExecutablePath())};
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&OpenGpus), &here) != 0 &&
      absl::StrContains(here.dli_fname, '/')) {
    folders.insert(folders.begin(), DirectoryOf(here.dli_fname));
  }
  for (const std::string& folder : folders) {
    const std::string file = absl::StrCat(folder, "/", kLibrary);
    if (access(file.c_str(), F_OK) == 0) return file;
  }
  return "";
}

}  // namespace

absl::StatusOr<cuda::DeviceMath*> internal::LoadDeviceMath(const std::string& path) {
  // Checked even if the system's loader will search for the library, since the user of the process
  // can influence that search.
  if (const absl::Status may = CheckMayLoadCode(); !may.ok())
    return Unusable(kLibrary, absl::StrCat(may.message(), ", or give --gpus=none"));
  std::string library = path.empty() ? LibraryBesideProgram() : path;
  if (!library.empty()) {
    if (const absl::Status trusted = CheckTrustedCode(library, kLibrary); !trusted.ok())
      return Unusable(library, trusted.message());
  }
  if (library.empty()) library = std::string(kLibrary);  // as the system's loader finds it
  // Never closed, because memory of its devices stays in use. Loaded locally: it shares no code
  // with this process, even where both contain the same symbols.
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const std::string said = dlerror();
    if (library == kLibrary && absl::StartsWith(said, absl::StrCat(kLibrary, ": cannot open")))
      return NoLibrary();
    return Unusable(
        library,
        absl::StrCat("cannot be loaded (", said,
                     "): it needs CUDA's own libraries, where the system's loader finds them"));
  }
  const auto open = reinterpret_cast<cuda::OpenDeviceMath>(dlsym(loaded, cuda::kOpenDeviceMath));
  if (open == nullptr)
    return Unusable(library, absl::StrCat("is not Divvy's: it has no ", cuda::kOpenDeviceMath));
  const char* why = "";
  cuda::DeviceMath* const math = open(cuda::kDeviceMathVersion, &why);
  if (math == nullptr) return Unusable(library, why);
  return math;
}

#endif  // DIVVY_STATIC

// ---- the process' GPUs --------------------------------------------------------------------------

namespace {

std::string Names(const cuda::DeviceMath& math) {
  std::vector<std::string> names;
  for (int i = 0; i < math.num_devices(); ++i)
    names.push_back(absl::StrCat(i, " (", math.name(i), ")"));
  return absl::StrJoin(names, ", ");
}

// The numbers of all devices. With `auto` only those that can be used, or all if there are none.
std::vector<int> NumbersOfAll(cuda::DeviceMath& math, GpuChoice::Kind kind) {
  std::vector<int> all, well;
  for (int i = 0; i < math.num_devices(); ++i) {
    all.push_back(i);
    if (kind != GpuChoice::Kind::kAuto) continue;
    const char* const wrong = math.Probe(i);
    if (wrong == nullptr) {
      well.push_back(i);
    } else {
      DIVVY_LOG(WARNING) << "GPU " << i << " (" << math.name(i) << ") is not used: " << wrong
                         << ". With --gpus=all this would end the worker";
    }
  }
  return well.empty() ? all : well;
}

absl::Status Choose(cuda::DeviceMath& math, const GpuChoice& choice) {
  const std::vector<int> numbers =
      choice.kind == GpuChoice::Kind::kListed ? choice.listed : NumbersOfAll(math, choice.kind);
  for (int number : numbers) {
    if (number < math.num_devices()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--gpus=", AbslUnparseFlag(choice),
                                                   ": this machine has no GPU ", number, ", only ",
                                                   Names(math)));
  }
  const char* const wrong = math.Choose(numbers.data(), static_cast<int>(numbers.size()));
  if (wrong == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--gpus=", AbslUnparseFlag(choice), ": ", wrong));
}

// The GPUs in use. Never destroyed, since tensors may outlive everything.
struct InUse {
  Mutex mu;
  std::optional<Gpus> gpus DIVVY_GUARDED_BY(mu);
  std::string options DIVVY_GUARDED_BY(mu);  // the options with which they were opened
  const internal::GpuBackend* backend DIVVY_GUARDED_BY(mu) = nullptr;
};
InUse& TheGpus() {
  static InUse* const in_use = new InUse();
  return *in_use;
}

std::string ToString(const GpuOptions& options) {
  return absl::StrCat(
      "--gpus=", AbslUnparseFlag(options.choice), " --gpu_memory_bytes=", options.memory_bytes,
      options.math.tf32 ? " --tf32" : "", options.math.deterministic ? " --deterministic" : "");
}

// Passes trace ranges to the profiler of the library.
class RangesOf : public TraceSink {
 public:
  explicit RangesOf(cuda::DeviceMath& math) : math_(math) {}
  void Begin(const char* name) override { math_.BeginRange(name); }
  void End() override { math_.EndRange(); }

 private:
  cuda::DeviceMath& math_;
};

bool IsSet(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && absl::string_view(text) == "1";
}

// CUDA loads a kernel when it is first launched, and may wait for the device then. Beside a
// collective, whose parts on several devices wait for each other, that wait would never end. The
// same is true of the connections that NCCL makes when a collective is first used. So both are done
// at start. A value that the user has set is kept.
void LoadAllAtStart() {
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/0);
}

absl::StatusOr<Gpus> TakeIntoUse(const GpuOptions& options, const internal::GpuBackend*& in_use) {
  const bool is_one =
      options.choice.kind == GpuChoice::Kind::kListed && options.choice.listed.size() == 1;
  // CUDA reads these variables when the library is opened.
  if (!is_one) LoadAllAtStart();
  const char* const named = std::getenv("DIVVY_CUDA_LIBRARY");
  ASSIGN_OR_RETURN(cuda::DeviceMath* const math,
                   internal::LoadDeviceMath(named == nullptr ? "" : named));
  RETURN_IF_ERROR(Choose(*math, options.choice));
  math->Configure(options.math);
  cuda::TransferOptions transfers;
  transfers.keeps_memory = !IsSet("DIVVY_GPU_PLAIN_MEMORY");
  const bool synchronous = IsSet("DIVVY_GPU_SYNC");
  if (synchronous)
    DIVVY_LOG(WARNING) << "DIVVY_GPU_SYNC=1: the host waits after each operation on a GPU, so that "
                          "an error names it. This is slow";
  auto* const backend =
      new internal::GpuBackend(*math, options.memory_bytes, transfers, synchronous);
  in_use = backend;
  SetGpuMemory(backend);
  internal::SetGpuBackend(backend);
  internal::SetGpuCollectives(backend);
  SetTraceSink(new RangesOf(*math));
  Gpus gpus;
  for (int i = 0; i < math->num_devices(); ++i) {
    gpus.devices.push_back({Device::Kind::kGpu, i});
    gpus.names.push_back(math->name(i));
  }
  return gpus;
}

}  // namespace

absl::StatusOr<Gpus> OpenGpus(const GpuOptions& options) {
  if (options.memory_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--gpu_memory_bytes is ", options.memory_bytes,
                                                   ", wanted at least 0 (0: no limit)"));
  }
  if (options.choice.kind == GpuChoice::Kind::kNone) return Gpus();
  const std::string wanted = ToString(options);
  InUse& in_use = TheGpus();
  MutexLock lock(in_use.mu);
  if (in_use.gpus) {
    if (in_use.options == wanted) return *in_use.gpus;
    return absl::FailedPreconditionError(
        absl::StrCat(wanted, ": this process already computes on GPUs, which were opened with ",
                     in_use.options));
  }
  absl::StatusOr<Gpus> gpus = TakeIntoUse(options, in_use.backend);
  if (gpus.ok()) {
    in_use.gpus = *gpus;
    in_use.options = wanted;
    return gpus;
  }
  const bool is_absent = absl::IsNotFound(gpus.status());
  if (options.choice.kind != GpuChoice::Kind::kAuto)
    return is_absent ? absl::FailedPreconditionError(gpus.status().message()) : gpus.status();
  Gpus none;
  if (!is_absent) none.why_none = std::string(gpus.status().message());
  return none;
}

void TrimGpuMemory() {
  InUse& in_use = TheGpus();
  MutexLock lock(in_use.mu);
  if (in_use.backend == nullptr) return;
  for (size_t device = 0; device < in_use.gpus->devices.size(); ++device)
    in_use.backend->Trim(static_cast<int>(device));
}

DeviceDescription Describe(Device device) {
  DeviceDescription description{device.ToString(), "", 0, 0};
  if (device.kind == Device::Kind::kCpu) return description;
  InUse& in_use = TheGpus();
  MutexLock lock(in_use.mu);
  description.name = in_use.gpus->names[device.index];
  description.memory_limit_bytes = in_use.backend->limit_bytes();
  description.memory_bytes = in_use.backend->bytes_in_use(device.index);
  return description;
}

// ---- replicas -----------------------------------------------------------------------------------

namespace {

void SayWhatComputes(const Gpus& gpus, int each, int num_workers) {
  static std::atomic<bool> is_said{false};
  const size_t num_gpus = gpus.devices.size();
  const bool is_news = num_gpus > 0 || !gpus.why_none.empty();
  if (!is_news || is_said.exchange(true)) return;
  if (num_gpus == 0) {
    DIVVY_LOG(WARNING) << "no CUDA device, computing on the CPU (" << gpus.why_none << ")";
  } else if (each == 0) {
    DIVVY_LOG(WARNING) << "computing on the CPU: there are " << num_gpus << " GPUs for "
                       << num_workers << " workers, which share none; with --workers=" << num_gpus
                       << " each has one";
  } else {
    const std::vector<std::string> used(gpus.names.begin(),
                                        gpus.names.begin() + each * num_workers);
    const std::string idle =
        used.size() < num_gpus
            ? absl::StrCat("; ", num_gpus - used.size(),
                           " stay unused, since workers get equal numbers of GPUs")
            : "";
    DIVVY_LOG(INFO) << "computing on " << used.size() << " GPUs: " << absl::StrJoin(used, ", ")
                    << idle;
  }
}

}  // namespace

std::map<std::string, int> AcceleratorsAmong(const std::vector<Device>& devices) {
  std::map<std::string, int> number;
  for (const Device device : devices) {
    if (device.kind == Device::Kind::kGpu) ++number["GPU"];
  }
  return number;
}

absl::StatusOr<int> GpusPerWorker(const GpuChoice& choice, int num_gpus, int num_workers,
                                  int replicas_per_worker) {
  if (choice.kind != GpuChoice::Kind::kAuto && num_gpus % num_workers != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus=", AbslUnparseFlag(choice), ": ", num_gpus,
                     " GPUs cannot be divided evenly among ", num_workers,
                     " workers, which share none: choose the same number of GPUs for each worker, "
                     "or another number of workers"));
  }
  const int each = num_gpus / num_workers;
  if (each == 0 || replicas_per_worker == 0 || replicas_per_worker == each) return each;
  return absl::InvalidArgumentError(absl::StrCat(
      "replicas_per_worker is ", replicas_per_worker,
      ", but a worker has a replica on each of its GPUs, and --gpus=", AbslUnparseFlag(choice),
      " gives it ", each,
      ": leave replicas_per_worker out, choose as many GPUs, or compute on the CPU with "
      "--gpus=none"));
}

absl::StatusOr<std::vector<std::vector<Device>>> OpenReplicaDevices(const GpuOptions& options,
                                                                    int replicas_per_worker,
                                                                    int num_workers) {
  ASSIGN_OR_RETURN(const Gpus gpus, OpenGpus(options));
  ASSIGN_OR_RETURN(const int each,
                   GpusPerWorker(options.choice, static_cast<int>(gpus.devices.size()), num_workers,
                                 replicas_per_worker));
  SayWhatComputes(gpus, each, num_workers);
  if (each == 0)
    return std::vector<std::vector<Device>>(num_workers,
                                            std::vector<Device>(std::max(1, replicas_per_worker)));
  std::vector<std::vector<Device>> workers(num_workers);
  for (int i = 0; i < num_workers * each; ++i) workers[i / each].push_back(gpus.devices[i]);
  return workers;
}

}  // namespace divvy
