#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

#include "device_state.h"

namespace tactus::compute::cuda::emulator {

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
  Order::The().HostWaitsForAll();
}

bool Device::DropsWait() {
  ++counts.waits;
  return waits_until_drop >= 0 && waits_until_drop-- == 0;
}

Clock Device::Known() const {
  Clock known = Order::The().host();
  for (const auto& weak : queues) {
    const auto queue = weak.lock();
    if (queue != nullptr && queue->next() != nullptr) Meet(&known, queue->next()->point.after);
  }
  return known;
}

Capture::Member& Capture::Of(const Queue* queue) {
  return *std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.queue.get() == queue; });
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

// Compares the memory of the host that `work` accesses with that of works which the host has not waited for, and takes
// down what the host must leave alone until the work runs.
void NoteHostAccess(Work* work) {
  const bool writes = work->writes.bytes > 0;
  const HostBytes memory = writes ? work->writes : work->reads;
  if (memory.bytes == 0) return;
  std::vector<HostAccess>& accesses = Device::The().host_accesses;
  std::erase_if(accesses, [](const HostAccess& a) { return Covers(Order::The().host(), a.stream, a.ordinal); });
  bool read = false, written = false;
  for (const HostAccess& a : accesses) {
    if (!a.memory.Overlaps(memory)) continue;
    (a.writes ? written : read) = true;
    if ((!a.writes && !writes) || Covers(work->point.after, a.stream, a.ordinal)) continue;
    ReportCall("race between streams", fmt::format("{} {} memory of the host, nothing orders it with {}", work->name,
                                                   writes ? "writes" : "reads", a.name));
  }
  accesses.push_back({memory, writes, work->name, work->point.stream, work->point.ordinal});
  if (!writes) {
    work->keeps_read = !written;
    work->read_hash = HashOf(memory);
  } else if (!read) {  // else work before it still has to read the old contents
    work->keeps_written = !written;
    std::memset(memory.at, 0xff, static_cast<size_t>(memory.bytes));
  }
}

// What the host did with the memory of the work since it was enqueued.
void CheckHost(const Work& work) {
  if (work.keeps_read && HashOf(work.reads) != work.read_hash) {
    ReportCall("race with the host", fmt::format("memory was changed before {} had read it", work.name));
  }
  const auto* const begin = reinterpret_cast<const unsigned char*>(work.writes.at);
  const auto is_poison = [](unsigned char c) { return c == 0xff; };
  if (work.keeps_written && !std::all_of(begin, begin + work.writes.bytes, is_poison)) {
    ReportCall("race with the host", fmt::format("memory was changed before {} had written it", work.name));
  }
}

void RunWork(Work& work) {
  if (!Device::The().status().ok()) return;
  if (work.waits) return work.run();
  CheckHost(work);
  Clock known = Device::The().Known();
  Meet(&known, work.point.after);
  Order::The().Begin(work.name, work.point, known);
  work.run();
  Order::The().End();
}

}  // namespace

Queue::Queue() : number_(Order::The().NewStream()) {}
Queue::~Queue() {
  const std::lock_guard lock(Device::The().mutex);
  Order::The().EndStream(number_);
}

void Queue::Push(Work work) {
  NoteHostAccess(&work);
  works_.push_back(std::move(work));
  ++added_;
}

void Queue::Add(Work work) {
  if (!Device::The().status().ok()) return;
  if (capture != nullptr) {
    Capture::Member& member = capture->Of(this);
    member.joined = false;
    const auto number = static_cast<int>(&member - capture->members.data());
    work.point = {number, At(member.clock, number) + 1, member.clock};
    Advance(&member.clock, number, work.point.ordinal);
    NoteReferences(&work);
    capture->works.push_back(std::move(work));
    return;
  }
  Order& order = Order::The();
  Follow(order.host());
  order.AddWorks(number_, 1);
  work.point = {number_, order.works(number_), clock_};
  Advance(&clock_, number_, work.point.ordinal);
  Push(std::move(work));
}

void Queue::AddGraph(const std::vector<Work>& works, std::vector<int> streams, const Clock& ends) {
  if (!Device::The().status().ok()) return;
  Order& order = Order::The();
  Follow(order.host());
  const Clock before = clock_;
  streams[0] = number_;
  std::vector<uint64_t> earlier;  // works, by member
  for (const int stream : streams) earlier.push_back(order.works(stream));
  const auto clock_of = [&](const Clock& recorded) {
    Clock clock = before;
    for (size_t m = 0; m < recorded.size(); ++m) {
      if (recorded[m] > 0) Advance(&clock, streams[m], earlier[m] + recorded[m]);
    }
    return clock;
  };
  for (const Work& recorded : works) {
    if (!StillThere(recorded)) continue;
    const auto member = static_cast<size_t>(recorded.point.stream);
    Work work = recorded;
    work.point = {streams[member], earlier[member] + recorded.point.ordinal, clock_of(recorded.point.after)};
    Push(std::move(work));
  }
  for (size_t m = 0; m < ends.size(); ++m) order.AddWorks(streams[m], ends[m]);
  clock_ = clock_of(ends);
}

void Queue::RunTo(uint64_t point) {
  while (done_ < point && !works_.empty()) {
    Work work = std::move(works_.front());
    works_.pop_front();
    RunWork(work);
    ++done_;
  }
}

void Queue::Drop() {
  works_.clear();
  done_ = added_;
}

}  // namespace tactus::compute::cuda::emulator
