// Barriers and warp functions of CUDA C++. Each states where it was called, for findings.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "block.h"

#define TACTUS_WHERE \
  ::tactus::compute::cuda::emulator::Where where = ::tactus::compute::cuda::emulator::Where::current()

namespace tactus::compute::cuda::emulator {

// The lanes of `mask` bring `in`; the last one calls compute(warp, mask), which gives each lane its Out.
template <class Out, class In, class Compute>
[[gnu::always_inline]] inline Out Meet(const char* kind, uint32_t mask, const In& in, const Where& where,
                                       const Compute& compute) {
  Thread& t = *current;
  Warp& w = *t.warp;
  w.Bring(t.lane, in);
  if (t.block->Arrive(t, kind, &mask, where)) {
    compute(w, mask);
    Block::Leave(w, mask);
  }
  return w.template Given<Out>(t.lane);
}

template <class F>
void ForLanes(uint32_t mask, F f) {
  if (mask == ~0u) {
    for (int lane = 0; lane < 32; ++lane) f(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

template <class T>
struct ShuffleIn {
  T value;
  int source;
};
// `source` is the lane that the value comes from, with the lane's own for "none".
template <class T>
[[gnu::always_inline]] inline T Shuffle(const char* kind, uint32_t mask, T value, int source, const Where& where) {
  return Meet<T>(kind, mask, ShuffleIn<T>{value, source}, where,
                 [&](Warp& w, uint32_t lanes) __attribute__((noinline)) {
                   ForLanes(lanes, [&](int lane) {
                     const int from = w.template Brought<ShuffleIn<T>>(lane).source;
                     if ((lanes >> from & 1) == 0) Report("shuffle reads a lane outside its mask", where, kind);
                     w.Give(lane, w.template Brought<ShuffleIn<T>>(from).value);
                   });
                 });
}

// Each lane takes the same.
template <class Out, class In, class Fold>
[[gnu::always_inline]] inline Out Reduce(const char* kind, uint32_t mask, In in, const Where& where, Out start,
                                         Fold fold) {
  return Meet<Out>(kind, mask, in, where, [&](Warp& w, uint32_t lanes) __attribute__((noinline)) {
    Out all = start;
    ForLanes(lanes, [&](int lane) { all = fold(all, w.template Brought<In>(lane), lane); });
    ForLanes(lanes, [&](int lane) { w.Give(lane, all); });
  });
}
[[gnu::always_inline]] inline uint32_t Ballot(const char* kind, uint32_t mask, bool bit, const Where& where) {
  return Reduce(kind, mask, bit, where, uint32_t{0},
                [](uint32_t all, bool in, int lane) { return all | (in ? 1u << lane : 0); });
}
template <class T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}
inline int LaneNow() {
  return current->lane;
}

}  // namespace tactus::compute::cuda::emulator

[[gnu::always_inline]] inline void __syncthreads(TACTUS_WHERE) {
  tactus::compute::cuda::emulator::current->block->Barrier(where);
}
[[gnu::always_inline]] inline void __syncwarp(unsigned mask = 0xffffffffu, TACTUS_WHERE) {
  using namespace tactus::compute::cuda::emulator;
  // A warp that is not full has no lanes beyond its last.
  if (mask == 0xffffffffu) mask = current->warp->all;
  Meet<char>("__syncwarp", mask, char{0}, where, [](Warp&, uint32_t lanes) { current->block->OrderLanes(lanes); });
}

template <class T>
[[gnu::always_inline]] inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, TACTUS_WHERE) {
  const int lane = tactus::compute::cuda::emulator::LaneNow();
  return tactus::compute::cuda::emulator::Shuffle("__shfl_sync", mask, value,
                                                  lane / width * width + (from & (width - 1)), where);
}
template <class T>
[[gnu::always_inline]] inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, TACTUS_WHERE) {
  const int lane = tactus::compute::cuda::emulator::LaneNow(), from = lane - static_cast<int>(by & 31u);
  return tactus::compute::cuda::emulator::Shuffle("__shfl_up_sync", mask, value,
                                                  from < lane / width * width ? lane : from, where);
}
template <class T>
[[gnu::always_inline]] inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, TACTUS_WHERE) {
  const int lane = tactus::compute::cuda::emulator::LaneNow(), from = lane + static_cast<int>(by & 31u);
  return tactus::compute::cuda::emulator::Shuffle("__shfl_down_sync", mask, value,
                                                  from >= (lane / width + 1) * width ? lane : from, where);
}
template <class T>
[[gnu::always_inline]] inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, TACTUS_WHERE) {
  const int lane = tactus::compute::cuda::emulator::LaneNow(), from = lane ^ (by & 31);
  return tactus::compute::cuda::emulator::Shuffle("__shfl_xor_sync", mask, value,
                                                  from >= (lane / width + 1) * width ? lane : from, where);
}

[[gnu::always_inline]] inline unsigned __ballot_sync(unsigned mask, int bit, TACTUS_WHERE) {
  return tactus::compute::cuda::emulator::Ballot("__ballot_sync", mask, bit != 0, where);
}
[[gnu::always_inline]] inline int __any_sync(unsigned mask, int bit, TACTUS_WHERE) {
  return tactus::compute::cuda::emulator::Ballot("__any_sync", mask, bit != 0, where) != 0;
}
[[gnu::always_inline]] inline int __all_sync(unsigned mask, int bit, TACTUS_WHERE) {
  return tactus::compute::cuda::emulator::Ballot("__all_sync", mask, bit == 0, where) == 0;
}
template <class T>
[[gnu::always_inline]] inline unsigned __match_any_sync(unsigned mask, T value, TACTUS_WHERE) {
  using namespace tactus::compute::cuda::emulator;
  return Meet<uint32_t>("__match_any_sync", mask, value, where, [](Warp& w, uint32_t lanes) __attribute__((noinline)) {
    ForLanes(lanes, [&](int a) {
      uint32_t same = 0;
      ForLanes(lanes,
               [&](int b) { same |= SameBits(w.template Brought<T>(a), w.template Brought<T>(b)) ? 1u << b : 0; });
      w.Give(a, same);
    });
  });
}
template <class T>
[[gnu::always_inline]] inline unsigned __match_all_sync(unsigned mask, T value, int* same, TACTUS_WHERE) {
  const unsigned matches = __match_any_sync(mask, value, where);
  *same = matches == mask;
  return *same != 0 ? mask : 0;
}

// sm_80: 32 bits.
#define TACTUS_EMULATED_REDUCE(name, start, expression)                                                              \
  template <class T>                                                                                                 \
  [[gnu::always_inline]] inline T name(unsigned mask, T value, TACTUS_WHERE) {                                       \
    static_assert(std::is_integral_v<T> && sizeof(T) == 4);                                                          \
    return ::tactus::compute::cuda::emulator::Reduce(#name, mask, value, where, static_cast<T>(start),               \
                                                     [](T a, T b, int) -> T { return static_cast<T>(expression); }); \
  }
TACTUS_EMULATED_REDUCE(__reduce_add_sync, 0, static_cast<unsigned>(a) + static_cast<unsigned>(b))
TACTUS_EMULATED_REDUCE(__reduce_min_sync, std::numeric_limits<T>::max(), a < b ? a : b)
TACTUS_EMULATED_REDUCE(__reduce_max_sync, std::numeric_limits<T>::min(), a < b ? b : a)
TACTUS_EMULATED_REDUCE(__reduce_and_sync, ~T{0}, a& b)
TACTUS_EMULATED_REDUCE(__reduce_or_sync, 0, a | b)
TACTUS_EMULATED_REDUCE(__reduce_xor_sync, 0, a ^ b)
#undef TACTUS_EMULATED_REDUCE
