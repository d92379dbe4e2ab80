// Launch of compute/cuda/kernels/launch.h under g++. Arguments become the kernel's parameters when Launch is called;
// pointers become accessors with the bounds of their allocation.
#pragma once

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

}  // namespace tactus::compute::cuda
