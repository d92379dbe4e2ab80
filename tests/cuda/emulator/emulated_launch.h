// Launch of compute/cuda/kernels/launch.h under g++. Arguments become the kernel's parameters when Launch is called;
// pointers become accessors with the bounds of their allocation.
#pragma once

#include <tuple>
#include <utility>

#include "device_state.h"
#include "emulated_device.h"

namespace tactus::compute::cuda {

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
  launch.body = [kernel, values = std::tuple<std::decay_t<P>...>(static_cast<P>(arguments)...)] {
    std::apply(kernel, values);
  };
  emulator::Enqueue(stream, std::move(launch));
}

}  // namespace tactus::compute::cuda
