#include "block.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tactus::compute::cuda::emulator {
namespace {

constexpr size_t kPage = 4096, kStackBytes = 256 * 1024;

uint32_t Lanes(int n) {
  return n >= 32 ? ~0u : (1u << n) - 1;
}

}  // namespace

constinit thread_local Thread* current [[gnu::tls_model("initial-exec")]] = nullptr;

FibreStack::FibreStack(int colour) : colour_(colour) {
  base_ =
      mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TACTUS_CHECK_MSG(base_ != MAP_FAILED, "no address space for the emulator's stacks");
  mprotect(base_, kPage, PROT_NONE);
}
FibreStack::~FibreStack() {
  if (base_ == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
  // Functions of the last fibre have not returned, and other memory may be mapped here.
  __asan_unpoison_memory_region(static_cast<char*>(base_) + kPage, kStackBytes);
#endif
  munmap(base_, kPage + kStackBytes);
}
Fibre FibreStack::Start(void (*entry)(boost::context::detail::transfer_t)) const {
  const size_t shift = static_cast<size_t>(colour_ % 32) * 320 % kPage;
  char* base = static_cast<char*>(base_) + kPage;
  Fibre fibre;
  fibre.context = boost::context::detail::make_fcontext(base + kStackBytes - shift, kStackBytes - shift, entry);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(base, kStackBytes);  // functions of an earlier fibre have not returned
  fibre.stack = base;
  fibre.stack_bytes = kStackBytes;
#endif
  return fibre;
}

Block::Block() : shadow_(Memory::kShared, kMostShared) {
  threads_.reserve(kMostThreads);
  warps_.reserve(kMostThreads / 32);
  shared_ = static_cast<char*>(
      mmap(nullptr, kMostShared, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  TACTUS_CHECK_MSG(shared_ != MAP_FAILED, "no address space for the emulator's shared memory");
}
Block::~Block() {
  munmap(shared_, kMostShared);
}

void Block::Start(const LaunchInfo& launch, uint32_t number) {
  launch_ = &launch;
  order_ = launch.order;
  index_ = dim3(number % launch.grid.x, number / launch.grid.x % launch.grid.y, number / launch.grid.x / launch.grid.y);
  serial_ = launch.first_serial + number;
  tick_ = 1;
  random_ = 2654435761u * static_cast<uint32_t>(serial_) + 1;
  live_ = launch.threads;
  at_barrier_ = 0;
  statics_.clear();
  shared_used_ = (launch.shared_bytes + 15) / 16 * 16;
  std::memset(shared_, 0xff, static_cast<size_t>(shared_used_));
  shadow_.Clear(0, shared_used_);

  const int warps = (launch.threads + 31) / 32;
  if (static_cast<int>(warps_.size()) < warps) warps_.resize(static_cast<size_t>(warps));
  if (static_cast<int>(threads_.size()) < launch.threads) threads_.resize(static_cast<size_t>(launch.threads));
  while (stacks_.size() < threads_.size()) stacks_.emplace_back(static_cast<int>(stacks_.size()));
  if (!std::exchange(all_ended_, false)) {
    for (Thread& t : threads_) t.fibre = Fibre();
  }
  ready_warps_ = Lanes(warps);
  for (int i = 0; i < warps; ++i) {
    Warp& w = warps_[static_cast<size_t>(i)];
    w.number = i;
    w.first = threads_.data() + 32 * static_cast<ptrdiff_t>(i);
    w.ready = w.live = w.all = Lanes(launch.threads - 32 * i);
    w.meetings = 0;
    if (std::exchange(w.knows, false)) std::memset(w.known, 0, sizeof w.known);
  }
  for (int i = 0; i < launch.threads; ++i) {
    Thread& t = threads_[static_cast<size_t>(i)];
    t.block = this;
    t.warp = &warps_[static_cast<size_t>(i / 32)];
    t.id = i;
    t.lane = i % 32;
    t.index = {static_cast<unsigned>(i), 0, 0};
    t.done = false;
    t.waits_in = nullptr;
    t.copies.clear();
    t.group = 0;
    t.moment.now = MakeStamp(serial_, tick_, static_cast<uint32_t>(i));
    t.moment.launch_floor = MakeStamp(launch.first_serial, 0, 0);
    t.moment.order_floor = launch.order_floor;
    t.moment.block_floor = t.moment.warp_floor = MakeStamp(serial_, 0, 0);
    t.moment.known = t.warp->known[t.lane];
    if (t.fibre.context == nullptr) t.fibre = stacks_[static_cast<size_t>(i)].Start(&Block::Enter);
  }
}

bool Block::Run(const LaunchInfo& launch, uint32_t number) {
  Start(launch, number);
  current = warps_[static_cast<size_t>(Pick(ready_warps_))].first;
  current += Pick(current->warp->ready);
  SwitchTo(&current->fibre, &main_);
  current = nullptr;
  all_ended_ = live_ == 0;
  if (all_ended_) return true;
  ReportDeadlock();
  current = nullptr;
  return false;
}

void Block::Enter(boost::context::detail::transfer_t from) {
  FinishSwitch(from, &current->fibre);
  while (true) {
    current->block->launch_->body();
    current->block->Exit();  // returns in a later block
  }
}

void Block::Exit() {
  Thread& t = *current;
  if (!t.copies.empty()) Report("thread ends with cp.async that it never waited for", t.copies.front().where);
  t.done = true;
  t.warp->live &= ~(1u << t.lane);
  --live_;
  if (at_barrier_ > 0 && at_barrier_ == live_) {
    Report("thread ends while others wait in __syncthreads", barrier_place_);
    ReleaseBarrier();
  }
  Wait(t, "its end", {});
}

// A warp runs until none of its lanes is ready.
Thread* Block::NextOfOthers(const Warp& w) {
  ready_warps_ &= ~(1u << w.number);
  if (ready_warps_ == 0) return nullptr;
  const Warp& next = warps_[static_cast<size_t>(Pick(ready_warps_))];
  return next.first + Pick(next.ready);
}

void Block::NextTick(uint64_t* tick) {
  TACTUS_CHECK_MSG(tick_ < kMostTicks, "a block has more barriers than the emulator can count");
  *tick = ++tick_;
}

void Block::CheckBarrier(const Where& where) {
  if (live_ != launch_->threads) Report("__syncthreads after threads of the block have ended", where);
  if (at_barrier_ == 0) {
    barrier_place_ = where;
  } else if (!IsSamePlace(barrier_place_, where)) {
    Report("__syncthreads reached at two places", where,
           fmt::format("other threads wait at line {}", barrier_place_.line()));
  }
}

void Block::ReleaseBarrier() {
  at_barrier_ = 0;
  uint64_t tick = 0;
  NextTick(&tick);
  const Stamp floor = MakeStamp(serial_, tick, 0);
  const int warps = (launch_->threads + 31) / 32;
  for (int i = 0; i < warps; ++i) {
    Warp& w = warps_[static_cast<size_t>(i)];
    w.ready = w.live;
    if (w.ready != 0) ready_warps_ |= 1u << i;
  }
  for (int i = 0; i < launch_->threads; ++i) {
    Moment& m = threads_[static_cast<size_t>(i)].moment;
    m.now = floor | (Stamp{static_cast<uint32_t>(i)} << kKindBits);
    m.block_floor = m.warp_floor = floor;
  }
}

bool Block::ArriveFirst(Thread& t, const char* kind, uint32_t* mask, const Where& where) {
  Warp& w = *t.warp;
  const uint32_t me = 1u << t.lane;
  if ((*mask & me) == 0) Report("lane is not in the mask of its warp function", where, kind);
  if ((*mask & ~w.live) != 0) Report("mask of a warp function has lanes that ended or do not exist", where, kind);
  *mask = (*mask & w.live) | me;
  int found = 0;
  while (found < w.meetings && (w.meeting[found].mask & *mask) == 0) ++found;
  Meeting& meeting = w.meeting[found];
  if (found == w.meetings) {
    if (*mask == me) return true;
    ++w.meetings;
    meeting = {*mask, 0, kind, where};
  } else if (meeting.mask != *mask || meeting.kind != kind || meeting.place.line() != where.line()) {
    Report("lanes of one mask reach different warp functions", where,
           fmt::format("{} and {} of line {}, masks {:08x} and {:08x}", kind, meeting.kind, meeting.place.line(), *mask,
                       meeting.mask));
    meeting.mask |= *mask;
  }
  meeting.arrived |= me;
  if (meeting.arrived != meeting.mask) {
    Wait(t, kind, where);
    return false;
  }
  *mask = meeting.mask;
  meeting = w.meeting[--w.meetings];
  return true;
}

void Block::OrderLanes(uint32_t mask) {
  Warp& w = *current->warp;
  uint64_t tick = 0;
  NextTick(&tick);
  const Stamp stamp = MakeStamp(serial_, tick, 0);
  const auto moment = [&](int lane) -> Moment& { return threads_[static_cast<size_t>(32 * w.number + lane)].moment; };
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    moment(lane).now = stamp | (Stamp{static_cast<uint32_t>(32 * w.number + lane)} << kKindBits);
    if (mask == w.all) moment(lane).warp_floor = stamp;
  }
  if (mask == w.all) return;
  w.knows = true;
  uint32_t known[32] = {};
  for (int lane = 0; lane < 32; ++lane) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      known[lane] = std::max(known[lane], w.known[std::countr_zero(rest)][lane]);
    }
    if ((mask >> lane & 1) != 0) known[lane] = static_cast<uint32_t>(tick);
  }
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    std::memcpy(w.known[std::countr_zero(rest)], known, sizeof known);
  }
}

char* Block::StaticShared(const void* key, int64_t bytes, const Where& where) {
  for (const Static& s : statics_) {
    if (s.key == key) return shared_ + s.at;
  }
  const int64_t at = shared_used_, size = (bytes + 15) / 16 * 16;
  if (at + size - launch_->shared_bytes > 48 * 1024 + 16) {
    Report("static shared memory of more than 48 KiB", where);
  }
  TACTUS_CHECK_MSG(at + size <= kMostShared, "a kernel declares more shared memory than the emulator has");
  statics_.push_back({key, at});
  shared_used_ += size;
  std::memset(shared_ + at, 0xff, static_cast<size_t>(size));
  shadow_.Clear(at, size);
  return shared_ + at;
}

void Block::ReportDeadlock() {
  std::string waiting;
  int listed = 0;
  const Thread* first = nullptr;
  for (int i = 0; i < launch_->threads && listed < 4; ++i) {
    const Thread& t = threads_[static_cast<size_t>(i)];
    if (t.done || (first != nullptr && first->waits_in == t.waits_in && first->place.line() == t.place.line()))
      continue;
    first = &t;
    waiting += fmt::format("{}thread {} in {} of line {}", listed++ > 0 ? ", " : "", i, t.waits_in, t.place.line());
  }
  if (first == nullptr) return;
  current = const_cast<Thread*>(first);
  Report("deadlock", first->place, waiting);
}

}  // namespace tactus::compute::cuda::emulator
