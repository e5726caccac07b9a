// What the readers of data need of the outside world.
#ifndef DIVVY_DATA_DATA_ENVIRONMENT_H_
#define DIVVY_DATA_DATA_ENVIRONMENT_H_

namespace divvy {

class Clock;
class Executor;
class FileSystem;

// The file system, executor and clock that iterators use. They must outlive the iterators; the
// executor must also outlive its own tasks.
struct DataEnvironment {
  // Null: FileSystem::Real().
  FileSystem* files = nullptr;
  // For Prefetch, and for Map with parallel calls. Null: Prefetch does nothing, and Map calls its
  // function on the thread that calls Next.
  Executor* executor = nullptr;
  // Times the log lines about a slow element, one every 10 s. Null: Clock::Real().
  const Clock* clock = nullptr;
};

}  // namespace divvy

#endif  // DIVVY_DATA_DATA_ENVIRONMENT_H_
