// compute/cuda/runtime.h on the CPU.
#include "compute/cuda/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "device_state.h"
#include "memory.h"

namespace tactus::compute::cuda {
namespace emulator {

Device& Device::The() {
  static Device* device = new Device;  // memory of static objects is freed after it would be destroyed
  return *device;
}

void Device::Fail(Status error) {
  if (status_.ok()) status_ = std::move(error);
}

// The host waits for all of it.
void Device::RunEverything() {
  for (const auto& weak : queues) {
    if (const auto queue = weak.lock()) queue->RunAll();
  }
  Order::The().HostSynchronizes();
}

namespace {

// What the addresses of a work that is recorded point into.
void NoteReferences(Work* work) {
  for (const void* address : work->addresses) {
    const Allocation* const a = FindAllocation(address);
    if (a == nullptr || address == a->address + a->bytes) continue;
    const bool known =
        std::any_of(work->references.begin(), work->references.end(), [&](const auto& r) { return r.device == a; });
    if (!known) work->references.push_back({.device = a, .name = a->name});
  }
  work->addresses.clear();
  for (const HostBytes& host : {work->reads, work->writes}) {
    if (host.bytes == 0) continue;
    work->references.push_back(
        {.pinned = host, .pinned_serial = PinnedSerial(host.at, host.bytes), .name = "pinned memory"});
  }
}

// False, with a finding: memory that a graph's work refers to has been freed since it was recorded.
bool StillThere(const Work& work) {
  bool there = true;
  for (const Referenced& r : work.references) {
    const bool freed =
        r.device != nullptr ? r.device->bytes == 0 : PinnedSerial(r.pinned.at, r.pinned.bytes) != r.pinned_serial;
    if (!freed) continue;
    ReportCall("Run of a graph", fmt::format("{} has an address of {}, which has been freed", work.name, r.name));
    there = false;
  }
  return there;
}

size_t HashOf(const HostBytes& bytes) {
  return std::hash<std::string_view>()({bytes.at, static_cast<size_t>(bytes.bytes)});
}

// What the host did with the memory of the work since it was enqueued.
void CheckHost(const Work& work) {
  if (work.reads_noted && HashOf(work.reads) != work.read_hash) {
    ReportCall("race with the host", fmt::format("pinned memory was changed before {} had read it", work.name));
  }
  if (!work.poisoned) return;
  const auto* const begin = reinterpret_cast<const unsigned char*>(work.writes.at);
  if (!std::all_of(begin, begin + work.writes.bytes, [](unsigned char c) { return c == 0xff; })) {
    ReportCall("race with the host", fmt::format("pinned memory was written before {} had written it", work.name));
  }
}

constexpr size_t kMostRemembered = 64;

}  // namespace

Queue::Queue() : number_(Order::The().NewStream()) {}
Queue::~Queue() {
  const std::lock_guard lock(Device::The().mutex);
  Order::The().EndStream(number_);
}

void Queue::Add(Work work) {
  Device& device = Device::The();
  if (!device.status().ok()) return;
  if (capture != nullptr) {
    for (Capture::Member& member : capture->members) {
      if (member.queue.get() == this) member.joined = false;
    }
    NoteReferences(&work);
    capture->works.push_back(std::move(work));
    return;
  }
  NoteHost(&work);
  Order& order = Order::The();
  Join(&clock_, order.host());
  work.after = clock_;
  work.ordinal = order.NextWork(number_);
  if (clock_.size() <= static_cast<size_t>(number_)) clock_.resize(static_cast<size_t>(number_) + 1);
  clock_[static_cast<size_t>(number_)] = work.ordinal;
  works_.push_back(std::move(work));
  ++added_;
}

// Before the work runs, the host must neither change what it reads nor touch what it writes.
void Queue::NoteHost(Work* work) const {
  bool read = false, written = false;  // by works that are still to run
  for (const auto& weak : Device::The().queues) {
    const auto queue = weak.lock();
    if (queue == nullptr) continue;
    read = read || queue->ReadsHost(work->writes);
    written = written || queue->WritesHost(work->reads) || queue->WritesHost(work->writes);
  }
  if (work->reads.bytes > 0 && !written) {
    work->reads_noted = true;
    work->read_hash = HashOf(work->reads);
  }
  if (work->writes.bytes > 0 && !read) {
    // From now on the device may write at any time.
    std::memset(work->writes.at, 0xff, static_cast<size_t>(work->writes.bytes));
    work->poisoned = !written;
  }
}

void Queue::RunTo(uint64_t point) {
  while (done_ < point && !works_.empty()) {
    Work work = std::move(works_.front());
    works_.pop_front();
    if (!Device::The().status().ok()) {
    } else if (work.waits) {
      work.run();
    } else {
      CheckHost(work);
      Order& order = Order::The();
      order.Begin(work.name, number_, work.ordinal, work.after);
      work.run();
      order.End();
      if (order.remembered() >= kMostRemembered) Device::The().PruneOrder();
    }
    ++done_;
  }
}

void Device::PruneOrder() {
  std::vector<const Clock*> pending;
  for (const auto& weak : queues) {
    const auto queue = weak.lock();
    if (queue != nullptr && queue->next() != nullptr) pending.push_back(&queue->next()->after);
  }
  Order::The().Prune(pending);
}

bool Queue::ReadsHost(const HostBytes& bytes) const {
  return bytes.bytes > 0 &&
         std::any_of(works_.begin(), works_.end(), [&](const Work& w) { return w.reads.Overlaps(bytes); });
}

bool Queue::WritesHost(const HostBytes& bytes) const {
  return bytes.bytes > 0 &&
         std::any_of(works_.begin(), works_.end(), [&](const Work& w) { return w.writes.Overlaps(bytes); });
}

void Queue::Drop() {
  works_.clear();
  done_ = added_;
}

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

class EmulatedGraph : public Graph {
 public:
  std::vector<Work> works;
};

class EmulatedEvent;

class EmulatedStream : public Stream {
 public:
  EmulatedStream() : queue_(std::make_shared<Queue>()) { Device::The().queues.push_back(queue_); }
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
    clock_ = queue_->clock();
  }
  void Synchronize() override {
    Device& device = Device::The();
    const Lock lock(device.mutex);
    if (queue_ == nullptr) return;
    if (capture_ != nullptr) return device.Fail(Internal("an event that was recorded into a graph cannot be awaited"));
    queue_->RunTo(point_);
    Join(&Order::The().host(), clock_);
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
  const HostBytes host = work.reads.bytes > 0 ? work.reads : work.writes;
  const bool waits = host.bytes > 0 && !IsPinned(host.at, host.bytes);
  if (waits && Capturing("a copy of memory that is not pinned")) return;
  queue_->Add(std::move(work));
  if (!waits) return;
  queue_->RunAll();
  Join(&Order::The().host(), queue_->clock());
}

void EmulatedStream::CopyToDevice(void* to, const void* from, int64_t bytes) {
  ScatterToDevice(to, bytes, from, bytes, 1);
}

void EmulatedStream::ScatterToDevice(void* to, int64_t stride, const void* from, int64_t bytes, int64_t count) {
  if (bytes <= 0 || count <= 0) return;
  char* const source = const_cast<char*>(static_cast<const char*>(from));
  const auto run = [to, stride, source, bytes, count] {
    const Stamp stamp = MakeStamp(NewSerials(1), 0, 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto range = FindRange(static_cast<char*>(to) + i * stride, bytes, "CopyToDevice");
      if (!range) return;
      std::memcpy(range->data(), source + i * bytes, static_cast<size_t>(bytes));
      WriteRange(*range, stamp, "CopyToDevice");
    }
  };
  AddCopy({.run = run, .reads = {source, bytes * count}, .name = "CopyToDevice", .addresses = {to}});
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
    std::memset(range->data(), byte, static_cast<size_t>(bytes));
    WriteRange(*range, MakeStamp(NewSerials(1), 0, 0), "Fill");
  };
  AddCopy({.run = run, .name = "Fill", .addresses = {to}});
}

void EmulatedStream::Wait(const Event& event) {
  Device& device = Device::The();
  const Lock lock(device.mutex);
  const auto& e = static_cast<const EmulatedEvent&>(event);
  if (e.queue() == nullptr) return;
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
    e.capture()->members.push_back({queue_, false});
    return;
  }
  // All that the event's stream has recorded so far is before its point.
  for (Capture::Member& member : queue_->capture->members) {
    if (member.queue == e.queue()) member.joined = true;
  }
}

void EmulatedStream::Synchronize() {
  const Lock lock(Device::The().mutex);
  if (Capturing("Synchronize")) return;
  queue_->RunAll();
  Join(&Order::The().host(), queue_->clock());
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
  auto graph = std::make_unique<EmulatedGraph>();
  graph->works = std::move(capture->works);
  return graph;
}

void EmulatedStream::Run(const Graph& graph) {
  const Lock lock(Device::The().mutex);
  if (Capturing("Run")) return;
  ++Device::The().counts.graph_runs;
  for (const Work& work : static_cast<const EmulatedGraph&>(graph).works) {
    if (StillThere(work)) queue_->Add(work);
  }
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
  Order::The().HostSynchronizes();
  std::erase_if(device.queues, [](const auto& weak) { return weak.expired(); });
  device.launches_until_failure = -1;
  device.ClearStatus();
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
