// compute/cuda/runtime.h on the CPU.
#include "compute/cuda/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "device_state.h"
#include "memory.h"

namespace tactus::compute::cuda {
namespace emulator {

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

class EmulatedGraph : public Graph {
 public:
  explicit EmulatedGraph(Capture& capture) : works(std::move(capture.works)), streams{0} {
    for (size_t m = 0; m < capture.members.size(); ++m) {
      if (m > 0) streams.push_back(Order::The().NewStream());
      Join(&ends, capture.members[m].clock);
    }
  }
  ~EmulatedGraph() override {
    const std::lock_guard lock(Device::The().mutex);
    for (size_t m = 1; m < streams.size(); ++m) Order::The().EndStream(streams[m]);
  }
  EmulatedGraph(const EmulatedGraph&) = delete;
  EmulatedGraph& operator=(const EmulatedGraph&) = delete;

  std::vector<Work> works;
  // As Queue::AddGraph's.
  std::vector<int> streams;
  Clock ends;
};

class EmulatedEvent;

class EmulatedStream : public Stream {
 public:
  EmulatedStream() : queue_(std::make_shared<Queue>()) {
    auto& queues = Device::The().queues;
    std::erase_if(queues, [](const auto& weak) { return weak.expired(); });
    queues.push_back(queue_);
  }
  ~EmulatedStream() override {
    const Lock lock(Device::The().mutex);
    queue_->RunAll();
  }
  void CopyToDevice(void* to, const void* from, int64_t bytes) override;
  void CopyToHost(void* to, const void* from, int64_t bytes) override;
  void GatherToHost(void* to, const void* from, int64_t stride, int64_t bytes, int64_t count) override;
  void ScatterToDevice(void* to, int64_t stride, const void* from, int64_t bytes, int64_t count) override;
  void CopyOnDevice(void* to, const void* from, int64_t bytes) override;
  void Fill(void* to, int byte, int64_t bytes) override;
  void Wait(const Event& event) override;
  void Synchronize() override;
  void BeginCapture() override;
  std::unique_ptr<Graph> EndCapture() override;
  void Run(const Graph& graph) override;
  const std::shared_ptr<Queue>& queue() const { return queue_; }

 private:
  void AddCopy(Work work);
  bool Capturing(const char* call) const;

  std::shared_ptr<Queue> queue_;
};

class EmulatedEvent : public Event {
 public:
  void Record(Stream& stream) override {
    const Lock lock(Device::The().mutex);
    queue_ = static_cast<EmulatedStream&>(stream).queue();
    capture_ = queue_->capture;
    point_ = capture_ != nullptr ? capture_->works.size() : queue_->added();
    time_ = static_cast<double>(queue_->added());
    clock_ = capture_ != nullptr ? capture_->Of(queue_.get()).clock : queue_->clock();
  }
  void Synchronize() override {
    Device& device = Device::The();
    const Lock lock(device.mutex);
    if (device.DropsWait() || queue_ == nullptr) return;
    if (capture_ != nullptr) return device.Fail(Internal("an event that was recorded into a graph cannot be awaited"));
    queue_->RunTo(point_);
    Order::The().HostWaits(clock_);
  }
  // The device keeps no time: a work takes a microsecond.
  double SecondsSince(const Event& start) const override {
    const Lock lock(Device::The().mutex);
    return 1e-6 * (time_ - static_cast<const EmulatedEvent&>(start).time_);
  }
  const std::shared_ptr<Queue>& queue() const { return queue_; }
  const std::shared_ptr<Capture>& capture() const { return capture_; }
  uint64_t point() const { return point_; }
  const Clock& clock() const { return clock_; }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Capture> capture_;
  uint64_t point_ = 0;
  Clock clock_;
  double time_ = 0;
};

bool EmulatedStream::Capturing(const char* call) const {
  if (queue_->capture == nullptr) return false;
  Device::The().Fail(Internal(fmt::format("{} is not allowed while the stream is captured", call)));
  return true;
}

void EmulatedStream::AddCopy(Work work) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  ++device.counts.copies;
  const bool waits = work.writes.bytes > 0 && !IsPinned(work.writes.at, work.writes.bytes);
  if (waits && Capturing("a copy of memory that is not pinned")) return;
  queue_->Add(std::move(work));
  if (!waits) return;
  queue_->RunAll();
  Order::The().HostWaits(queue_->clock());
}

void EmulatedStream::CopyToDevice(void* to, const void* from, int64_t bytes) {
  ScatterToDevice(to, bytes, from, bytes, 1);
}

void EmulatedStream::ScatterToDevice(void* to, int64_t stride, const void* from, int64_t bytes, int64_t count) {
  if (bytes <= 0 || count <= 0) return;
  const Lock lock(Device::The().mutex);
  const bool pinned = IsPinned(from, bytes * count);
  if (!pinned && Capturing("a copy of memory that is not pinned")) return;
  char* source = const_cast<char*>(static_cast<const char*>(from));
  // Ordinary memory is copied at the call, as by a card's driver, which does not wait until the copy has arrived.
  std::shared_ptr<const std::vector<char>> staged;
  if (!pinned) staged = std::make_shared<const std::vector<char>>(source, source + bytes * count);
  const auto run = [to, stride, source = pinned ? source : staged->data(), staged, bytes, count] {
    const Stamp stamp = MakeStamp(NewSerials(1), 0, 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto range = FindRange(static_cast<char*>(to) + i * stride, bytes, "CopyToDevice");
      if (!range) return;
      WriteRange(*range, stamp, "CopyToDevice");
      std::memcpy(range->data(), source + i * bytes, static_cast<size_t>(bytes));
    }
  };
  const HostBytes reads = pinned ? HostBytes{source, bytes * count} : HostBytes();
  AddCopy({.run = run, .reads = reads, .name = "CopyToDevice", .addresses = {to}});
}

void EmulatedStream::CopyToHost(void* to, const void* from, int64_t bytes) {
  GatherToHost(to, from, bytes, bytes, 1);
}

void EmulatedStream::GatherToHost(void* to, const void* from, int64_t stride, int64_t bytes, int64_t count) {
  if (bytes <= 0 || count <= 0) return;
  char* const target = static_cast<char*>(to);
  const auto run = [target, from, stride, bytes, count] {
    const Stamp stamp = MakeStamp(NewSerials(1), 0, 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto range = FindRange(static_cast<const char*>(from) + i * stride, bytes, "CopyToHost");
      if (!range) return;
      ReadRange(*range, stamp, "CopyToHost");
      std::memcpy(target + i * bytes, range->data(), static_cast<size_t>(bytes));
    }
  };
  AddCopy({.run = run, .writes = {target, bytes * count}, .name = "CopyToHost", .addresses = {from}});
}

void EmulatedStream::CopyOnDevice(void* to, const void* from, int64_t bytes) {
  if (bytes <= 0) return;
  const auto run = [to, from, bytes] {
    const auto target = FindRange(to, bytes, "CopyOnDevice"), source = FindRange(from, bytes, "CopyOnDevice");
    if (!target || !source) return;
    if (target->memory == source->memory && std::abs(target->offset - source->offset) < bytes) {
      ReportCall("CopyOnDevice", fmt::format("source and target overlap in {}", target->memory->name));
    }
    const Stamp stamp = MakeStamp(NewSerials(1), 0, 0);
    ReadRange(*source, stamp, "CopyOnDevice");
    CheckOrder(*target, true, "CopyOnDevice");
    std::memmove(target->data(), source->data(), static_cast<size_t>(bytes));
    target->shadow().CopyWritten(target->offset, source->shadow(), source->offset, bytes, stamp);
  };
  AddCopy({.run = run, .name = "CopyOnDevice", .addresses = {to, from}});
}

void EmulatedStream::Fill(void* to, int byte, int64_t bytes) {
  if (bytes <= 0) return;
  const auto run = [to, byte, bytes] {
    const auto range = FindRange(to, bytes, "Fill");
    if (!range) return;
    WriteRange(*range, MakeStamp(NewSerials(1), 0, 0), "Fill");
    std::memset(range->data(), byte, static_cast<size_t>(bytes));
  };
  AddCopy({.run = run, .name = "Fill", .addresses = {to}});
}

void EmulatedStream::Wait(const Event& event) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  const auto& e = static_cast<const EmulatedEvent&>(event);
  if (device.DropsWait() || e.queue() == nullptr) return;
  if (e.capture() == nullptr) {
    if (queue_->capture != nullptr) {
      return device.Fail(Internal("a captured stream cannot wait for an event from outside of the capture"));
    }
    queue_->Follow(e.clock());
    queue_->Add({.run = [from = e.queue(), point = e.point()] { from->RunTo(point); }, .name = "Wait", .waits = true});
    return;
  }
  if (queue_->capture == nullptr) {  // joins the capture
    queue_->capture = e.capture();
    e.capture()->members.push_back({queue_, false, e.clock()});
    return;
  }
  Join(&queue_->capture->Of(queue_.get()).clock, e.clock());
  // All that the event's stream has recorded so far is before its point.
  for (Capture::Member& member : queue_->capture->members) {
    if (member.queue == e.queue()) member.joined = true;
  }
}

void EmulatedStream::Synchronize() {
  const Lock lock(Device::The().mutex);
  if (Capturing("Synchronize")) return;
  queue_->RunAll();
  Order::The().HostWaits(queue_->clock());
}

void EmulatedStream::BeginCapture() {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  if (Capturing("BeginCapture")) return;
  ++device.captures;
  queue_->capture = std::make_shared<Capture>();
  queue_->capture->members.push_back({queue_, true});
}

std::unique_ptr<Graph> EmulatedStream::EndCapture() {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  const std::shared_ptr<Capture> capture = queue_->capture;
  if (capture == nullptr || capture->members.front().queue != queue_) {
    device.Fail(Internal("EndCapture of a stream that began none"));
    return nullptr;
  }
  --device.captures;
  for (size_t i = 0; i < capture->members.size(); ++i) {
    capture->members[i].queue->capture = nullptr;
    if (i > 0 && !capture->members[i].joined) {
      device.Fail(Internal("EndCapture: a stream that joined the capture was not waited for"));
    }
  }
  if (!device.status().ok()) return nullptr;
  return std::make_unique<EmulatedGraph>(*capture);
}

void EmulatedStream::Run(const Graph& graph) {
  const Lock lock(Device::The().mutex);
  if (Capturing("Run")) return;
  ++Device::The().counts.graph_runs;
  const auto& g = static_cast<const EmulatedGraph&>(graph);
  queue_->AddGraph(g.works, g.streams, g.ends);
}

}  // namespace

Queue& QueueOf(Stream& stream) {
  return *static_cast<EmulatedStream&>(stream).queue();
}
bool IsCaptured(Stream& stream) {
  const Lock lock(Device::The().mutex);
  return QueueOf(stream).capture != nullptr;
}

void SetLaneOrder(LaneOrder order) {
  const Lock lock(Device::The().mutex);
  Device::The().order = order;
}
LaneOrder CurrentLaneOrder() {
  return Device::The().order;
}

std::vector<std::string> TakeFindings() {
  const Lock lock(Device::The().mutex);
  Device::The().RunEverything();
  return DrainFindings();
}

void FailLaunchAfter(int64_t launches, Status error, const std::string& kernel) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  device.launches_until_failure = launches;
  device.planned_failure = std::move(error);
  device.failing_kernel = kernel;
}

void ResetDevice() {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  for (const auto& weak : device.queues) {
    if (const auto queue = weak.lock()) queue->Drop();
  }
  Order::The().HostWaitsForAll();
  device.launches_until_failure = -1;
  device.waits_until_drop = -1;
  device.ClearStatus();
}

void DropWaitAfter(int64_t waits) {
  const Lock lock(Device::The().mutex);
  Device::The().waits_until_drop = waits;
}

void SetDeviceShape(const DeviceShape& shape) {
  const Lock lock(Device::The().mutex);
  Device::The().shape = shape;
}

Counts CurrentCounts() {
  const Lock lock(Device::The().mutex);
  Counts counts = Device::The().counts;
  counts.memory_bytes = AllocatedBytes();
  return counts;
}

void SetWorkers(int workers) {
  const Lock lock(Device::The().mutex);
  Device::The().workers = workers;
}

}  // namespace emulator

using emulator::Device;
using emulator::Lock;

Result<DeviceInfo> OpenDevice(int32_t number) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  if (number != 0) {
    return InvalidArgument(fmt::format("there is no device {}: the emulator has device 0", number), "device");
  }
  device.ClearStatus();
  DeviceInfo info;
  info.name = "emulated device";
  info.capability = device.shape.capability;
  info.multiprocessors = device.shape.multiprocessors;
  info.memory_bytes = device.shape.memory_bytes;
  info.free_bytes = device.shape.memory_bytes - emulator::AllocatedBytes();
  info.l2_bytes = 4 << 20;
  info.shared_bytes_per_block = device.shape.shared_bytes_per_block;
  info.driver = "emulator";
  return info;
}

Status DeviceStatus() {
  const Lock lock(Device::The().mutex);
  return Device::The().status();
}

Result<DeviceMemory> DeviceMemory::Allocate(int64_t bytes, const char* name) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  if (!device.status().ok()) return device.status();
  if (device.captures > 0)
    emulator::ReportCall("DeviceMemory::Allocate", fmt::format("{} while a stream is captured", name));
  const int64_t free = device.shape.memory_bytes - emulator::AllocatedBytes();
  if (bytes > free) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{}: {} bytes of device memory, of which {} are free", name, bytes, free));
  }
  DeviceMemory memory;
  if (bytes <= 0) return memory;
  memory.data_.reset(emulator::Allocate(bytes, name)->address);
  memory.bytes_ = bytes;
  return memory;
}

// As cudaFree, these wait for all work.
void DeviceMemory::Free::operator()(void* p) const {
  const Lock lock(Device::The().mutex);
  Device::The().RunEverything();
  emulator::Free(p);
}

Result<PinnedMemory> PinnedMemory::Allocate(int64_t bytes) {
  const Lock lock(Device::The().mutex);
  if (!Device::The().status().ok()) return Device::The().status();
  PinnedMemory memory;
  if (bytes <= 0) return memory;
  memory.data_.reset(emulator::AllocatePinned(bytes));
  memory.bytes_ = bytes;
  return memory;
}

void PinnedMemory::Free::operator()(void* p) const {
  const Lock lock(Device::The().mutex);
  Device::The().RunEverything();
  emulator::FreePinned(p);
}

Result<std::unique_ptr<Event>> Event::Create() {
  const Lock lock(Device::The().mutex);
  if (!Device::The().status().ok()) return Device::The().status();
  return std::unique_ptr<Event>(std::make_unique<emulator::EmulatedEvent>());
}

Result<std::unique_ptr<Stream>> Stream::Create() {
  const Lock lock(Device::The().mutex);
  if (!Device::The().status().ok()) return Device::The().status();
  return std::unique_ptr<Stream>(std::make_unique<emulator::EmulatedStream>());
}

}  // namespace tactus::compute::cuda
