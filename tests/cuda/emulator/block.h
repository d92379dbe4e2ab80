// A block of threads, run as fibres by one thread of the processor. A fibre runs until it waits for others, and then
// hands over to the next one that is ready.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "emulator.h"
#include "fibre.h"
#include "findings.h"
#include "shadow.h"
#include "values.h"

namespace tactus::compute::cuda::emulator {

class Block;
struct Warp;

struct LaunchInfo {
  const char* name = "";
  dim3 grid;
  int threads = 0;
  int shared_bytes = 0;
  uint64_t first_serial = 0;
  LaneOrder order = LaneOrder::kForward;
  std::function<void()> body;  // the kernel, called by each thread
};

struct AsyncCopy {
  char* to = nullptr;
  const char* from = nullptr;  // null: zeros
  int group = 0;
  Where where;
};

struct Thread {
  Moment moment;
  Block* block = nullptr;
  Warp* warp = nullptr;
  uint3 index{};
  int id = 0;
  int lane = 0;
  bool done = false;
  Fibre fibre;
  // Where it waits; null: nowhere.
  const char* waits_in = nullptr;
  Where place;
  std::vector<AsyncCopy> copies;  // that have not landed
  int group = 0;                  // of the next copy
};

// A warp function that some lanes have reached.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  const char* kind = nullptr;
  Where place;
};

struct Warp {
  static constexpr int kMeetings = 32;
  static constexpr size_t kSlot = 64;
  int number = 0;
  uint32_t ready = 0, live = 0, all = 0;  // lanes
  int meetings = 0;                       // entries of `meeting` in use
  Meeting meeting[kMeetings];
  uint32_t known[32][32] = {};  // Moment::known
  bool knows = false;           // it is not all 0
  // What lanes bring to a warp function and take from it.
  alignas(16) unsigned char in[32][kSlot], out[32][kSlot];
};

// The thread that runs; null outside kernels.
extern constinit thread_local Thread* current;

class Block {
 public:
  Block();
  ~Block();
  // Runs block `number` of the launch. False: some threads waited for ever; a finding says where.
  bool Run(const LaunchInfo& launch, uint32_t number);

  dim3 index() const { return index_; }
  dim3 grid() const { return launch_->grid; }
  int threads() const { return launch_->threads; }
  const char* kernel() const { return launch_->name; }

  // Shared memory: the launch's dynamic part, then the static parts in the order in which threads reach them.
  char* shared() { return shared_; }
  Shadow& shadow() { return shadow_; }
  int64_t shared_used() const { return shared_used_; }
  int64_t dynamic_bytes() const { return launch_->shared_bytes; }
  // The part that belongs to `key`, the same for all threads.
  char* StaticShared(const void* key, int64_t bytes, const Where& where);

  // A barrier of all threads.
  void Barrier(const Where& where);
  // A lane reaches a warp function. True: it was the last of `mask`; then it calls Leave() after its work for the
  // others. `mask` loses the lanes that do not exist.
  bool Arrive(const char* kind, uint32_t* mask, const Where& where);
  void Leave(uint32_t mask);
  // Orders the accesses of the lanes of `mask`: those before the barrier come before those after it.
  void OrderLanes(uint32_t mask);

  // Runs other threads until this one is ready.
  void Wait(const char* what, const Where& where);

 private:
  struct Static {
    const void* key;
    int64_t at;
  };
  static void Enter(boost::context::detail::transfer_t from);
  void Start(const LaunchInfo& launch, uint32_t number);
  void Exit();
  void HandOver(Fibre* here);
  Thread* NextReady();
  int Pick(uint32_t ready);
  void NextTick(uint64_t* tick);
  void ReleaseBarrier();
  void ReportDeadlock();

  const LaunchInfo* launch_ = nullptr;
  dim3 index_;
  std::vector<Thread> threads_;  // these never move: fibres that wait for the next block refer to them
  std::vector<Warp> warps_;
  std::vector<FibreStack> stacks_;
  Fibre main_;
  uint32_t ready_warps_ = 0;
  int live_ = 0, at_barrier_ = 0;
  bool all_ended_ = true;  // the threads of the block before; then their fibres wait for the next block
  Where barrier_place_;
  uint64_t serial_ = 0, tick_ = 0;
  uint32_t random_ = 1;
  char* shared_ = nullptr;
  int64_t shared_used_ = 0;
  Shadow shadow_;
  std::vector<Static> statics_;
};

inline constexpr int64_t kMostShared = 228 * 1024;
inline constexpr int kMostThreads = 1024;

}  // namespace tactus::compute::cuda::emulator
