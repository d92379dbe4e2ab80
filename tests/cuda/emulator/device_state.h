// The emulated device: its error, its streams' work, and the threads that run blocks. Behind runtime.h, gemm.h and
// Launch.
//
// Work is done late: only when an event or a stream is synchronised, or another stream waits for it. So the host sees
// poison where it reads a result too early, and a copy takes what the host has written too early.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "block.h"
#include "compute/cuda/runtime.h"
#include "emulator.h"
#include "memory.h"
#include "order.h"

namespace tactus::compute::cuda::emulator {

struct HostBytes {
  char* at = nullptr;
  int64_t bytes = 0;
  bool Overlaps(const HostBytes& other) const { return at < other.at + other.bytes && other.at < at + bytes; }
};

// Memory that the arguments of a recorded work point into, as it was then.
struct Referenced {
  const Allocation* device = nullptr;
  HostBytes pinned;
  uint64_t pinned_serial = 0;
  std::string name;
};

struct Work {
  std::function<void()> run;
  HostBytes reads, writes;  // memory of the host
  const char* name = "";
  std::vector<const void*> addresses = {};  // among its arguments, only while its stream is captured
  std::vector<Referenced> references = {};  // of a graph's work
  bool waits = false;                       // for another stream; it accesses nothing itself
  WorkPoint point = {};                     // while it is recorded: by Capture::members instead of by stream
  // What the host must leave alone until the work has run.
  size_t read_hash = 0;
  bool keeps_read = false;     // `reads` has read_hash
  bool keeps_written = false;  // `writes` has all bits 1
};

// Memory of the host that a work accesses, until the host has waited for the work.
struct HostAccess {
  HostBytes memory;
  bool writes = false;
  const char* name = "";
  int stream = 0;
  uint64_t ordinal = 0;
};

class Queue;

// What streams record between BeginCapture and EndCapture, in the order of the calls.
struct Capture {
  struct Member {
    std::shared_ptr<Queue> queue;
    bool joined = true;  // the first member waits for its last work
    Clock clock = {};    // by member: the works so far, and those before them
  };
  Member& Of(const Queue* queue);

  std::vector<Member> members;  // the stream that began first
  std::vector<Work> works;
};

// The work of a stream. Under the device's mutex.
class Queue {
 public:
  Queue();
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(Work work);
  // `streams`: of the order, for Capture::members but the first. `ends`: works of each member.
  void AddGraph(const std::vector<Work>& works, std::vector<int> streams, const Clock& ends);
  // Later works come after those of `clock`.
  void Follow(const Clock& clock) { Join(&clock_, clock); }
  const Clock& clock() const { return clock_; }  // all works so far, and those before them
  // Runs the first works of all that the queue ever had.
  void RunTo(uint64_t point);
  void RunAll() { RunTo(added_); }
  uint64_t added() const { return added_; }
  uint64_t done() const { return done_; }
  const Work* next() const { return works_.empty() ? nullptr : &works_.front(); }
  void Drop();

  std::shared_ptr<Capture> capture;

 private:
  void Push(Work work);

  std::deque<Work> works_;
  uint64_t added_ = 0, done_ = 0;
  const int number_;  // in the order of works
  Clock clock_;
};

class Device {
 public:
  static Device& The();

  // Held by every function of runtime.h, also while work runs: kernels' blocks run on other threads without it.
  std::recursive_mutex mutex;
  DeviceShape shape;
  LaneOrder order = LaneOrder::kForward;
  Counts counts;
  int64_t launches_until_failure = -1;  // -1: none is planned
  Status planned_failure;
  std::string failing_kernel;  // empty: any
  std::vector<std::weak_ptr<Queue>> queues;
  std::vector<HostAccess> host_accesses;
  int64_t waits_until_drop = -1;  // -1: none is dropped
  int captures = 0;
  int workers = 0;  // 0: as many as the machine has, two at most

  const Status& status() const { return status_; }
  void Fail(Status error);
  void ClearStatus() { status_ = Status(); }
  void RunEverything();
  // Whether a test wants this wait to do nothing.
  bool DropsWait();
  // The works that come before all that has not run yet.
  Clock Known() const;

 private:
  Status status_;
};

// The queue behind a Stream.
Queue& QueueOf(Stream& stream);

bool IsCaptured(Stream& stream);
// Adds the kernel's run to the stream, or fails the device if the launch's shape is not allowed.
void Enqueue(Stream& stream, LaunchInfo launch);
// Runs all blocks now.
void RunLaunch(LaunchInfo& launch);

}  // namespace tactus::compute::cuda::emulator
