// Calls from Python into this module, and interpreter shutdown. After shutdown a thread that requests the GIL is
// terminated within its C++ frames, which aborts the process. So every method call is a Call: it is counted until its
// result or exception exists. EndCalls waits for the running calls and rejects later ones without running Python code.
// Thread rule: any thread. A forked process counts only the calls of its one thread.
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

// Within a Call: releases the GIL while the object lives. After shutdown the thread never returns.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// For atexit, in Python's main thread: stops simulations, closes every LLM, waits for running calls, and rejects later
// ones. Ctrl-C ends the wait; remaining threads then never return.
void EndCalls();
// Set when EndCalls begins: running work must end soon.
const std::atomic<bool>& CallsEnd();
int CallsUnderWay();

// Called once when the module is created: the exception class for rejected calls.
void BeginCalls(nanobind::handle refusal);

// Runs `work`, the body of a method, as a counted Call with the GIL. It returns a nanobind::object or void. Errors
// become Python exceptions within the count, because that runs Python code.
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

// Runs `work` without the GIL, within a Call.
template <class Work>
auto Away(Work&& work) -> decltype(work()) {
  const WithoutGil away;
  return work();
}

inline constexpr std::chrono::milliseconds kLook{20};  // interval of checks for Python's signals

// The same for long work: it runs on a separate thread, while the calling thread, the only one that Python's signals
// reach, checks for them. An exception from a signal stops the work and is thrown after it has ended.
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
