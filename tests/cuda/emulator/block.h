// A block of threads, run as fibres by one thread of the processor. A fibre runs until it waits for others, and then
// hands over to the next one that is ready.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "emulator.h"
#include "fibre.h"
#include "findings.h"
#include "shadow.h"
#include "values.h"

namespace tactus::compute::cuda::emulator {

class Block;
class Warp;

struct LaunchInfo {
  const char* name = "";
  dim3 grid;
  int threads = 0;
  int shared_bytes = 0;
  uint64_t first_serial = 0;
  Stamp order_floor = 0;  // as Moment's
  LaneOrder order = LaneOrder::kForward;
  std::function<void()> body;      // the kernel, called by each thread
  std::vector<const void*> words;  // of its parameters, while the stream is captured
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

// Mostly true for one call in the source, and never for calls in different lines.
inline bool IsSamePlace(const Where& a, const Where& b) {
  return a.line() == b.line() && a.file_name() == b.file_name();
}

class Warp {
 public:
  static constexpr int kMeetings = 32;
  static constexpr size_t kSlot = 64, kSmallSlot = 16;
  int number = 0;
  Thread* first = nullptr;                // its lanes' threads
  uint32_t ready = 0, live = 0, all = 0;  // lanes
  int meetings = 0;                       // entries of `meeting` in use
  Meeting meeting[kMeetings];
  uint32_t known[32][32] = {};  // Moment::known
  bool knows = false;           // it is not all 0

  // What lanes bring to a warp function, and what it gives them. Most of it is small, and then close together.
  template <class T>
  void Bring(int lane, const T& v) {
    Put(kIsSmall<T> ? small_in_[lane] : large_in_[lane], v);
  }
  template <class T>
  T Brought(int lane) const {
    return Get<T>(kIsSmall<T> ? small_in_[lane] : large_in_[lane]);
  }
  template <class T>
  void Give(int lane, const T& v) {
    Put(kIsSmall<T> ? small_out_[lane] : large_out_[lane], v);
  }
  template <class T>
  T Given(int lane) const {
    return Get<T>(kIsSmall<T> ? small_out_[lane] : large_out_[lane]);
  }

 private:
  template <class T>
  static constexpr bool kIsSmall = sizeof(T) <= kSmallSlot;
  template <class T>
  static void Put(unsigned char* slot, const T& v) {
    static_assert(sizeof(T) <= kSlot && std::is_trivially_copyable_v<T>);
    std::memcpy(slot, static_cast<const void*>(&v), sizeof v);
  }
  template <class T>
  static T Get(const unsigned char* slot) {
    T v;
    std::memcpy(static_cast<void*>(&v), slot, sizeof v);
    return v;
  }
  alignas(64) unsigned char small_in_[32][kSmallSlot], small_out_[32][kSmallSlot];
  unsigned char large_in_[32][kSlot], large_out_[32][kSlot];
};

// The thread that runs; null outside kernels. The model spares a call of the C library for each access.
extern constinit thread_local Thread* current [[gnu::tls_model("initial-exec")]];

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
  [[gnu::always_inline]] void Barrier(const Where& where) {
    const bool first = at_barrier_ == 0 || !IsSamePlace(barrier_place_, where) || live_ != launch_->threads;
    if (first) [[unlikely]] {
      CheckBarrier(where);
    }
    if (++at_barrier_ == live_) {
      ReleaseBarrier();
    } else {
      Wait(*current, "__syncthreads", where);
    }
  }
  // A lane reaches a warp function. True: it was the last of `mask`; then it calls Leave() after its work for the
  // others. `mask` loses the lanes that do not exist.
  [[gnu::always_inline]] bool Arrive(Thread& t, const char* kind, uint32_t* mask, const Where& where) {
    Warp& w = *t.warp;
    Meeting& m = w.meeting[0];
    const uint32_t me = 1u << t.lane;
    if (w.meetings != 1 || m.mask != *mask || (*mask & me) == 0 || m.kind != kind || !IsSamePlace(m.place, where)) {
      return ArriveFirst(t, kind, mask, where);
    }
    m.arrived |= me;
    if (m.arrived != m.mask) {
      Wait(t, kind, where);
      return false;
    }
    w.meetings = 0;
    return true;
  }
  static void Leave(Warp& w, uint32_t mask) { w.ready |= mask & w.live; }
  // Orders the accesses of the lanes of `mask`: those before the barrier come before those after it.
  void OrderLanes(uint32_t mask);

  // Runs other threads until this one is ready. All of it is inline in the kernel, because the processor predicts no
  // return of a function after a switch.
  [[gnu::always_inline]] void Wait(Thread& t, const char* what, const Where& where) {
    t.waits_in = what;
    t.place = where;
    Warp& w = *t.warp;
    w.ready &= ~(1u << t.lane);
    Thread* next = w.ready != 0 ? w.first + Pick(w.ready) : NextOfOthers(w);
    current = next;
    SwitchTo(next == nullptr ? &main_ : &next->fibre, &t.fibre);
  }

 private:
  struct Static {
    const void* key;
    int64_t at;
  };
  static void Enter(boost::context::detail::transfer_t from);
  void Start(const LaunchInfo& launch, uint32_t number);
  void Exit();
  // One of the lanes or warps that are ready, of which there are some.
  int Pick(uint32_t ready) {
    if (order_ == LaneOrder::kForward) return std::countr_zero(ready);
    if (order_ == LaneOrder::kReverse) return 31 - std::countl_zero(ready);
    random_ = random_ * 1664525u + 1013904223u;
    const int turn = static_cast<int>(random_ >> 27);
    return (std::countr_zero(std::rotr(ready, turn)) + turn) % 32;
  }
  // The next thread when no lane of `w` is ready. Null: none is.
  Thread* NextOfOthers(const Warp& w);
  void CheckBarrier(const Where& where);
  [[gnu::noinline]] bool ArriveFirst(Thread& t, const char* kind, uint32_t* mask, const Where& where);
  void NextTick(uint64_t* tick);
  void ReleaseBarrier();
  void ReportDeadlock();

  const LaunchInfo* launch_ = nullptr;
  dim3 index_;
  std::vector<Thread> threads_;  // these never move: fibres that wait for the next block refer to them
  std::vector<Warp> warps_;
  std::vector<FibreStack> stacks_;
  Fibre main_;
  LaneOrder order_ = LaneOrder::kForward;
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
