// Rounds a matrix to int4 by least squares against its inputs (Frantar et al., "GPTQ", 2023): not each weight w to its
// nearest value w', but all so that |X (w - w')|^2 is small, where X are the inputs [tokens, columns] of a calibration.
// Columns are rounded in order, and the errors of earlier columns are subtracted from the next:
//
//   H = X^T X + damping = (I + U) D (I + U)^T,   U strictly upper
//   w'[k] = nearest(w[k] + sum over j < k of (w[j] - w'[j]) U[j, k])
//
// (in this form by Chee et al., "QuIP", 2023, who show that it equals GPTQ and needs no inverse). A group's scale and
// zero point are fitted just before it is rounded, to its weights at that point, each error weighted with the diagonal
// of H.
//
// The same bits for every number of threads and on every machine of this architecture (fit/product.h).
#pragma once

#include <cstdint>

#include "compute/kernels/packed/packed.h"
#include "compute/kernels/thread_pool.h"

namespace tactus::compute {

// h [cols, cols] = x^T x, its upper triangle, of x [tokens, cols].
void GramUpper(ThreadPool& pool, const float* x, int64_t tokens, int64_t cols, float* h);

// Factors h [cols, cols] (its upper triangle) after adding `damping` times the mean of its diagonal to the diagonal. In
// place: U above the diagonal; the factored diagonal goes to `importance` [cols]. False: h has no such factors in f32
// (more damping may help), or has non-finite numbers, or only zeros.
bool FactorInputs(ThreadPool& pool, int64_t cols, float damping, float* h, float* importance);

// Rounds w [rows, cols] in place and packs its codes into `out` [form.bytes()]; form: QuantizedFormOf(kInt4). `u` and
// `importance`: from FactorInputs. errors [rows, cols]: scratch.
void RoundInt4(ThreadPool& pool, const float* u, const float* importance, const PackedMatrix& form, float* w,
               float* errors, std::byte* out);

}  // namespace tactus::compute
