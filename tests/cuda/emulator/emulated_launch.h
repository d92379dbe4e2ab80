// Launch of compute/cuda/kernels/launch.h under g++. Arguments become the kernel's parameters when Launch is called;
// pointers become accessors with the bounds of their allocation.
#pragma once

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "device_state.h"
#include "emulated_device.h"

namespace tactus::compute::cuda {
namespace emulator {

// Appends every word of a kernel's parameter: those that are addresses count (Queue::Add).
template <class T>
void AppendWords(const T& parameter, std::vector<const void*>* words) {
  for (size_t at = 0; at + sizeof(void*) <= sizeof(T); at += alignof(void*)) {
    const void* word;
    std::memcpy(&word, reinterpret_cast<const char*>(&parameter) + at, sizeof word);
    words->push_back(word);
  }
}

}  // namespace emulator

template <class... P, class... A>
void Launch(const char* name, Stream& stream, void (*kernel)(P...), dim3 grid, int threads, int shared_bytes,
            A&&... arguments) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's parameters are copied as bytes");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  emulator::LaunchInfo launch;
  launch.name = name;
  launch.grid = grid;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  const std::tuple<std::decay_t<P>...> values(static_cast<P>(arguments)...);
  if (emulator::IsCaptured(stream)) {
    std::apply([&](const auto&... v) { (emulator::AppendWords(v, &launch.words), ...); }, values);
  }
  launch.body = [kernel, values] { std::apply(kernel, values); };
  emulator::Enqueue(stream, std::move(launch));
}

// A multiprocessor has 2048 threads, and the shared memory that one block may ask for.
template <class... P>
int BlocksPerMultiprocessor(const char* /*name*/, void (* /*kernel*/)(P...), int threads, int shared_bytes) {
  const int64_t by_memory = emulator::Device::The().shape.shared_bytes_per_block / std::max(shared_bytes, 1);
  return static_cast<int>(std::clamp<int64_t>(by_memory, 1, std::max(2048 / threads, 1)));
}

}  // namespace tactus::compute::cuda
