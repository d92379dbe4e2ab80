// An event loop for clients that share a thread: a server's own, or one that its owner runs.
//
// Thread rule: Post and Stop on any thread, Run on one. Everything that is called back is called inside Run.
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
  ~Loop();  // what was posted and has not run is dropped
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Post(std::function<void()> call);
  // Inside Run, or before it: calls when so much time has passed.
  void After(DurationNs time_ns, std::function<void()> call);
  // The addresses of a host, ascending, each once; an address is its own. Inside Run, or before it; called back later.
  void Resolve(const std::string& host, std::function<void(Result<std::vector<std::string>>)> found);
  // Returns when nothing is left to do, or after Stop, also one that came before. May be called again. What a callback
  // throws ends that callback alone.
  void Run();
  void Stop();

  struct Impl;  // http/loop_impl.h
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
