// Python's states of Divvy's threads.
#ifndef DIVVY_PYTHON_NATIVE_THREAD_STATES_H_
#define DIVVY_PYTHON_NATIVE_THREAD_STATES_H_

namespace divvy::python {

// Gives this thread a Python state that it keeps until it ends, unless it has one. Without it each
// gil_scoped_acquire makes a state, with a stack from mmap, and deletes it, and what the program
// puts into a threading.local is gone after each step. Frees the states of threads that have ended.
// Blocks for the GIL at a thread's first call; later calls cost nothing. The caller may hold the
// GIL.
void KeepThreadState();

// In the child of a fork, where Python frees the states of all threads but one by itself.
void ForgetThreadStates();

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_THREAD_STATES_H_
