// What a start could not get, memory or one more thread, as an error instead of an exception.
#pragma once

#include <new>
#include <string>
#include <system_error>

#include "tactus/status.h"

namespace tactus {

// fn() -> Status or Result<T>; kResourceExhausted where fn ran out of memory or threads.
template <class Fn>
auto CatchShortage(Fn&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted,
                  "out of memory at start: lower --max-num-seqs, --max-model-len or --kv-cache-memory, or raise the "
                  "limit ('ulimit -v', the container's)");
  } catch (const std::system_error& e) {
    return Status(StatusCode::kResourceExhausted, std::string("a thread could not be started (") + e.what() +
                                                      "): lower --threads or --http-workers, or raise the limits on "
                                                      "threads and memory ('ulimit -u', 'ulimit -v', the container's)");
  }
}

}  // namespace tactus
