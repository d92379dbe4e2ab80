// Calls from Python into this module, and the end of the interpreter. Once that has come, a thread that asks for the
// GIL is ended on the spot, in the midst of its C++ frames, which aborts the process. So every call of every method is
// a Call: it is counted until its result or its exception is made. The end waits for the calls that are under way
// (EndCalls), and refuses later ones without running any of Python's code.
//
// Thread rule: any thread. A process that was forked counts only the calls of its one thread.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include "python/status_error.h"
#include "tactus/stop_token.h"

namespace tactus::python {

class Call {
 public:
  Call();  // with the GIL. Throws nanobind::python_error, an UnavailableError, once EndCalls has begun
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

// Within a Call: the thread has no GIL while this lives. Once the interpreter has ended the thread never comes back.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// For atexit, in Python's main thread: stops simulations, closes every LLM, waits for the calls under way, and has
// later ones refused. Ctrl-C ends the wait; the threads that are left do not come back then.
void EndCalls();
// Set when EndCalls begins: work under way ends soon.
const std::atomic<bool>& CallsEnd();
int CallsUnderWay();

// Called once, when the module is made: a class of exceptions for refused calls.
void BeginCalls(nanobind::handle refusal);

// What a call of a method does, `work`, counted. It has the GIL, and gives a nanobind::object or nothing. Errors become
// exceptions of Python within the count, because that runs code of Python.
template <class Work>
auto Counted(Work&& work) -> decltype(work()) {
  const Call call;
  try {
    return work();
  } catch (const StatusError& error) {
    Raise(error.status());
  } catch (const std::bad_alloc&) {
    Raise(Status(StatusCode::kResourceExhausted, "no memory is left for this call"));
  } catch (const std::system_error& error) {
    Raise(Status(StatusCode::kResourceExhausted, error.what()));
  } catch (const nanobind::python_error&) {
    throw;
  } catch (const nanobind::builtin_exception&) {
    throw;
  } catch (const std::exception& error) {
    Raise(Internal(error.what()));
  }
}

// `work` without the GIL, in a Call.
template <class Work>
auto Away(Work&& work) -> decltype(work()) {
  const WithoutGil away;
  return work();
}

inline constexpr std::chrono::milliseconds kLook{20};  // between two looks at Python's signals

// The same for work that may take long: it runs on a thread of its own, and the calling one, which alone can see
// Python's signals, looks at them meanwhile. What a signal raises stops the work and is thrown when that has ended.
template <class Work>
auto Watched(Work&& work) -> decltype(work(StopToken())) {
  std::atomic<bool> stopped = false;
  std::optional<nanobind::python_error> raised;
  auto running = std::async(std::launch::async, [&] { return work(StopToken(&stopped)); });
  while (true) {
    if (Away([&] { return running.wait_for(kLook); }) == std::future_status::ready) break;
    if (CallsEnd()) stopped = true;
    if (!raised && PyErr_CheckSignals() != 0) {
      raised.emplace();
      stopped = true;
    }
  }
  if (raised) {
    Away([&] { running.wait(); });
    throw nanobind::python_error(std::move(*raised));
  }
  return running.get();
}

}  // namespace tactus::python
