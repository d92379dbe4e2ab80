// Runs launches: their blocks, on one or two threads of the processor.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <numeric>
#include <thread>

#include "device_state.h"
#include "memory.h"

namespace tactus::compute::cuda::emulator {
namespace {

// Blocks of a launch, in an order that is no interface: kernels must not depend on it.
class BlockOrder {
 public:
  BlockOrder(LaneOrder order, uint32_t blocks, uint64_t seed) : order_(order), blocks_(blocks) {
    if (order != LaneOrder::kShuffled || blocks < 3) return;
    start_ = static_cast<uint32_t>(seed * 40503u % blocks);
    step_ = static_cast<uint32_t>(seed * 7919u % blocks) | 1u;
    while (std::gcd(step_, blocks) != 1) ++step_;
  }
  uint32_t At(uint32_t i) const {
    if (order_ == LaneOrder::kReverse) return blocks_ - 1 - i;
    return static_cast<uint32_t>((start_ + uint64_t{step_} * i) % blocks_);
  }

 private:
  LaneOrder order_;
  uint32_t blocks_, start_ = 0, step_ = 1;
};

Block& ThisThreadsBlock() {
  thread_local std::unique_ptr<Block> block;
  if (block == nullptr) block = std::make_unique<Block>();
  return *block;
}

// A second thread that helps with a launch's blocks.
class Helper {
 public:
  static Helper& The() {
    static Helper* helper = new Helper;  // never destroyed: it waits for work until the process ends
    return *helper;
  }
  void Start(const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    changed_.notify_all();
  }
  void Finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_ == nullptr; });
  }

 private:
  Helper() {
    std::thread([this] { Loop(); }).detach();
  }
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      lock.unlock();
      (*work_)();
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
};

// Threads of a launch from which a second core gains more than waking it costs: measured over the models' tests.
constexpr uint64_t kWorthWaking = 2048;

std::string ShapeError(const LaunchInfo& launch, const DeviceShape& shape) {
  if (launch.threads < 1 || launch.threads > kMostThreads) {
    return fmt::format("{} threads; a block has 1 to {}", launch.threads, kMostThreads);
  }
  if (launch.grid.x > 0x7fffffffu || launch.grid.y > 65535 || launch.grid.z > 65535) {
    return fmt::format("a grid of ({}, {}, {}); at most (2147483647, 65535, 65535)", launch.grid.x, launch.grid.y,
                       launch.grid.z);
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > shape.shared_bytes_per_block) {
    return fmt::format("{} bytes of shared memory; the device has {}", launch.shared_bytes,
                       shape.shared_bytes_per_block);
  }
  return "";
}

}  // namespace

void RunLaunch(LaunchInfo& launch) {
  Device& device = Device::The();
  const uint64_t blocks = uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  launch.first_serial = NewSerials(static_cast<int64_t>(blocks));
  launch.order_floor = std::min(MakeStamp(launch.first_serial, 0, 0), FirstUnordered());
  launch.order = device.order;
  ++device.counts.launches;
  device.counts.blocks += static_cast<int64_t>(blocks);
  const BlockOrder order(launch.order, static_cast<uint32_t>(blocks), launch.first_serial);
  std::atomic<uint64_t> next{0};
  const std::function<void()> work = [&] {
    Block& block = ThisThreadsBlock();
    for (uint64_t i = next++; i < blocks; i = next++) {
      if (!block.Run(launch, order.At(static_cast<uint32_t>(i)))) next = blocks;  // the others would wait too
    }
  };
  const unsigned machine = std::max(1u, std::thread::hardware_concurrency());
  const int workers = device.workers > 0 ? device.workers : static_cast<int>(std::min(machine, 2u));
  if (workers < 2 || blocks < 2 || blocks * static_cast<uint64_t>(launch.threads) < kWorthWaking) return work();
  Helper::The().Start(work);
  work();
  Helper::The().Finish();
}

void Enqueue(Stream& stream, LaunchInfo launch) {
  Device& device = Device::The();
  const std::lock_guard lock(device.mutex);
  const std::string error = ShapeError(launch, device.shape);
  if (!error.empty()) return device.Fail(Internal(fmt::format("launch of {}: {}", launch.name, error)));
  Work work;
  work.name = launch.name;
  work.addresses = std::move(launch.words);
  work.run = [launch = std::move(launch)]() mutable {
    Device& d = Device::The();
    if (d.failing_kernel.empty() || d.failing_kernel == launch.name) {
      if (d.launches_until_failure == 0) return d.Fail(d.planned_failure);
      if (d.launches_until_failure > 0) --d.launches_until_failure;
    }
    RunLaunch(launch);
  };
  QueueOf(stream).Add(std::move(work));
}

}  // namespace tactus::compute::cuda::emulator
