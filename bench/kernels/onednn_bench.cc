// oneDNN's matrix products on the shapes of packed_bench, to decide which to use: bf16 x bf16 -> f32 and s8 x s8 -> f32
// with one scale per output column, weights in the library's preferred format. Built only by bench/kernels/onednn.sh;
// the program does not use oneDNN.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "oneapi/dnnl/dnnl.hpp"

int main() {
  using namespace dnnl;
  const engine cpu(engine::kind::cpu, 0);
  stream run(cpu);
  struct Format {
    const char* name;
    memory::data_type type;
    int64_t bytes;
  };
  for (const Format& format : {Format{"bf16", memory::data_type::bf16, 2}, Format{"int8", memory::data_type::s8, 1}}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{5632, 2048}, {2048, 5632}, {32000, 2048}}) {
      for (const int64_t m : {1, 4, 8, 16, 32, 64, 128, 512}) {
        const memory::desc x({m, k}, format.type, memory::format_tag::ab),
            any({k, n}, format.type, memory::format_tag::any);
        const memory::desc y({m, n}, memory::data_type::f32, memory::format_tag::ab);
        primitive_attr attributes;
        if (format.bytes == 1) attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
        const matmul::primitive_desc described(cpu, x, any, y, attributes);
        const matmul product(described);
        // The turns rotate over copies of the weights that together exceed the caches.
        const int64_t copies = std::max<int64_t>(2, (int64_t{128} << 20) / (n * k * format.bytes));
        std::vector<memory> weights;
        for (int64_t i = 0; i < copies; ++i) {
          weights.emplace_back(described.weights_desc(), cpu);
          std::memset(weights.back().get_data_handle(), 1, described.weights_desc().get_size());  // touches its pages
        }
        memory from(x, cpu), to(y, cpu), scales({{n}, memory::data_type::f32, memory::format_tag::a}, cpu);
        for (int64_t i = 0; i < n; ++i) static_cast<float*>(scales.get_data_handle())[i] = 0.01f;
        double best = 1e9, spent = 0;
        for (int64_t i = 0; i < copies + 4 || spent < 0.1; ++i) {
          const tactus::TimeNs start = tactus::SystemClock().NowNs();
          product.execute(run, {{DNNL_ARG_SRC, from},
                                {DNNL_ARG_WEIGHTS, weights[static_cast<size_t>(i % copies)]},
                                {DNNL_ARG_DST, to},
                                {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, scales}});
          run.wait();
          const double seconds = static_cast<double>(tactus::SystemClock().NowNs() - start) * 1e-9;
          spent += seconds;
          if (i >= copies && seconds < best) best = seconds;
        }
        std::printf("onednn %s  M %4ld  %5ld x %4ld  %9.1f us  %7.1f GOP/s  %6.1f GB/s\n", format.name,
                    static_cast<long>(m), static_cast<long>(n), static_cast<long>(k), best * 1e6,
                    2e-9 * static_cast<double>(m * n * k) / best,
                    1e-9 * static_cast<double>(n * k * format.bytes) / best);
      }
    }
  }
}
