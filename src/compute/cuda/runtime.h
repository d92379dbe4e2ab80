// The part of the CUDA runtime that the backend uses, without CUDA's headers: one device, its memory, streams, events
// and graphs. Two libraries implement it: runtime_cuda.cc over the CUDA runtime, and tests/cuda/emulator/ on the CPU.
//
// Errors. A device fails once and for all: after the first failed call or launch every later call does nothing, and
// DeviceStatus() returns that error. Functions without a Result may therefore be called in any state.
//
// Threads: any, but one thread at a time per stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tactus/status.h"

namespace tactus::compute::cuda {

struct DeviceInfo {
  std::string name;        // "NVIDIA H200"
  int32_t capability = 0;  // 10 * major + minor of the compute capability: 90
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // that a kernel may ask for
  std::string driver;                  // "580.159.04, CUDA 13.0"
};

// Selects the device for the process. kUnavailable: no driver, no device, or a driver too old, with what is there and
// what is needed. kInvalidArgument: no device of this number.
Result<DeviceInfo> OpenDevice(int32_t number);

// The first error since OpenDevice: kInternal, or kResourceExhausted for memory.
Status DeviceStatus();

// Memory of the device, and memory of the host that copies can read and write while kernels run. Contents are not
// initialised. kResourceExhausted: the size, and what is free of the device, or the option to lower for the host.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `name`: of the buffer, for errors: "KV of layer 3".
  static Result<DeviceMemory> Allocate(int64_t bytes, const char* name);
  template <class T = std::byte>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

class PinnedMemory {
 public:
  PinnedMemory() = default;
  static Result<PinnedMemory> Allocate(int64_t bytes);
  template <class T = std::byte>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

// Work of a stream runs in the order of the calls. Every function below but Synchronize only enqueues.
class Stream;
class Event;

// A point in a stream's work.
class Event {
 public:
  static Result<std::unique_ptr<Event>> Create();
  virtual ~Event() = default;
  // Marks the end of the work that `stream` has now.
  virtual void Record(Stream& stream) = 0;
  // Waits, without using the processor, until the last recorded point has been passed.
  virtual void Synchronize() = 0;
  // Seconds from the recorded point of `start` to this one's; both have been passed.
  virtual double SecondsSince(const Event& start) const = 0;
};

// A recorded sequence of launches and copies, which costs one call to repeat.
class Graph {
 public:
  virtual ~Graph() = default;
};

class Stream {
 public:
  static Result<std::unique_ptr<Stream>> Create();
  virtual ~Stream() = default;
  // `to` of CopyToHost is in pinned memory, else the call waits for the copy. `from` of CopyToDevice too, else the call
  // reads it, and may return before the copy has arrived.
  virtual void CopyToDevice(void* to, const void* from, int64_t bytes) = 0;
  virtual void CopyToHost(void* to, const void* from, int64_t bytes) = 0;
  // As the two above, of `count` pieces of `bytes`: one after another in the host's memory, `stride` apart on the
  // device. A stride is a multiple of `bytes`.
  virtual void GatherToHost(void* to, const void* from, int64_t stride, int64_t bytes, int64_t count) = 0;
  virtual void ScatterToDevice(void* to, int64_t stride, const void* from, int64_t bytes, int64_t count) = 0;
  virtual void CopyOnDevice(void* to, const void* from, int64_t bytes) = 0;
  virtual void Fill(void* to, int byte, int64_t bytes) = 0;
  virtual void Wait(const Event& event) = 0;  // later work runs after the event's recorded point
  virtual void Synchronize() = 0;
  // Between the two calls work is recorded, not run. Null: it could not be recorded, see DeviceStatus(); while that is
  // ok, there is no memory for the graph.
  virtual void BeginCapture() = 0;
  virtual std::unique_ptr<Graph> EndCapture() = 0;
  virtual void Run(const Graph& graph) = 0;
};

}  // namespace tactus::compute::cuda
