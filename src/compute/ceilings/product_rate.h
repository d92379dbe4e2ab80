// The rate of a real product of packed weights, beside the ceiling of its arithmetic: kernels wait for loads and for
// each other's results, which hyperthreads can hide and loops in registers cannot show.
#pragma once

#include "base/clock.h"
#include "compute/kernels/ops.h"

namespace tactus::compute {

// Operations per second, a multiply-add counted as two, of int8 weights by int8 tokens, 128 tokens at a time: the best
// of a few tries, 0.1 s or less. The caller's thread is one of the pool's.
double MeasureProductRate(ThreadPool& pool, const Ops& ops, Clock& clock);

}  // namespace tactus::compute
