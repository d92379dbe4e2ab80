#include <cstring>

#include "compute/ceilings/loops.h"

namespace tactus::compute {
namespace {
struct Vec {
  typedef float F __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static F Set1(float v) { return F{v, v, v, v}; }
  static F Fma(F a, F b, F c) { return a * b + c; }
  static F Add(F a, F b) { return a + b; }
  static F Load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static float First(F v) { return v[0]; }
};
}  // namespace
#include "compute/ceilings/f32_loop.inc"
#include "compute/ceilings/read_loop.inc"

CeilingLoops PortableLoops() {
  return {F32Loop, 2 * kChains * Vec::kWidth, nullptr, 0, ReadLoop};
}

}  // namespace tactus::compute
