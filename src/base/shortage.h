// Converts exceptions for missing memory or threads at start into errors.
#pragma once

#include <new>
#include <string>
#include <system_error>

#include "tactus/status.h"

namespace tactus {

inline std::string OptionsToLower(const char* options) {
  return options == nullptr ? std::string() : std::string("lower ") + options + ", or ";
}

// fn() -> Status or Result<T>; kResourceExhausted if fn ran out of memory or threads. `memory_options`,
// `thread_options`: options to lower then, for the message; null: none.
template <class Fn>
auto CatchShortage(Fn&& fn, const char* memory_options = "--max-num-seqs, --max-model-len or --kv-cache-memory",
                   const char* thread_options = "--threads or --http-workers") -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "out of memory: " + OptionsToLower(memory_options) +
                                                      "raise the limit ('ulimit -v', the container's)");
  } catch (const std::system_error& e) {
    return Status(StatusCode::kResourceExhausted,
                  std::string("a thread could not be started (") + e.what() + "): " + OptionsToLower(thread_options) +
                      "raise the limits on threads and memory ('ulimit -u', 'ulimit -v', the container's)");
  }
}

}  // namespace tactus
