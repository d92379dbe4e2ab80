// An event loop for clients that share a thread: the io thread of a server, or a thread of the owner.
//
// Thread rule: Post and Stop on any thread, Run on one. All callbacks run inside Run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "tactus/status.h"

namespace tactus::http {

class Loop {
 public:
  Loop();
  ~Loop();  // drops posted calls that have not run
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Post(std::function<void()> call);
  // Inside Run, or before it: calls `call` after `time_ns`.
  void After(DurationNs time_ns, std::function<void()> call);
  // The addresses of a host, ascending, each once; an address resolves to itself. Inside Run, or before it; `found` is
  // called later.
  void Resolve(const std::string& host, std::function<void(Result<std::vector<std::string>>)> found);
  // Returns when no work is left, or after Stop, also an earlier one. May be called again. An exception ends only its
  // callback.
  void Run();
  void Stop();

  struct Impl;  // http/loop_impl.h
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
