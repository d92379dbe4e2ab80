// A library with cuBLASLt's functions that src/compute/cuda/cublaslt.h names: loops over memory of the host, and a
// record of which algorithm computed how many columns. Values of 16 bits are bf16; codes of 8 bits are integers.
//
// It has two algorithms. The first cannot compute fewer than 8 columns.
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/library/fake_cublaslt.h"

namespace {

struct Operation {
  int transposed = 0;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t stride = 0;
};
struct Preference {
  uint32_t alignments[4] = {};
  uint32_t reductions = 7;
};
struct Algorithm {
  uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
constexpr int kNotSupported = 15;
constexpr int kTypeF32 = 0, kTypeBF16 = 14, kTypeE4M3 = 28;

std::vector<FakeProduct> g_products;
std::vector<FakeChoice> g_choices;

double At(const void* data, int type, int64_t i) {
  if (type == kTypeF32) return static_cast<const float*>(data)[i];
  if (type == kTypeE4M3) return static_cast<const int8_t*>(data)[i];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// Towards zero: the tests' values need no rounding.
void Put(void* data, int type, int64_t i, double value) {
  const auto v = static_cast<float>(value);
  if (type == kTypeF32) {
    static_cast<float*>(data)[i] = v;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
}
bool Computes(const Algorithm& algorithm, const Layout& d) {
  return algorithm.data[0] != 1 || d.columns >= 8;
}

}  // namespace

extern "C" {

const std::vector<FakeProduct>& FakeProducts() {
  return g_products;
}
const std::vector<FakeChoice>& FakeChoices() {
  return g_choices;
}
size_t cublasLtGetVersion() {
  return 130000;
}
const char* cublasLtGetStatusName(int) {
  return "CUBLAS_STATUS_NOT_SUPPORTED";
}
int cublasLtCreate(void** handle) {
  static int object;
  *handle = &object;
  return 0;
}
int cublasLtDestroy(void*) {
  return 0;
}
int cublasLtMatmulDescCreate(Operation** made, int, int) {
  *made = new Operation;
  return 0;
}
int cublasLtMatmulDescDestroy(Operation* object) {
  delete object;
  return 0;
}
int cublasLtMatmulDescSetAttribute(Operation* object, int attribute, const void* value, size_t) {
  if (attribute == 3) std::memcpy(&object->transposed, value, sizeof(int));
  return 0;
}
int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  *made = new Layout{type, rows, columns, stride};
  return 0;
}
int cublasLtMatrixLayoutDestroy(Layout* object) {
  delete object;
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(Layout* object, int attribute, const void* value, size_t) {
  if (attribute == 3) std::memcpy(&object->columns, value, 8);
  if (attribute == 4) std::memcpy(&object->stride, value, 8);
  return 0;
}
int cublasLtMatmulPreferenceCreate(Preference** made) {
  *made = new Preference;
  return 0;
}
int cublasLtMatmulPreferenceDestroy(Preference* object) {
  delete object;
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* object, int attribute, const void* value, size_t) {
  if (attribute >= 5 && attribute <= 8) std::memcpy(&object->alignments[attribute - 5], value, 4);
  if (attribute == 3) std::memcpy(&object->reductions, value, 4);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, Operation*, Layout*, Layout*, Layout*, Layout* d, Preference* preference,
                                   int most, Found* found, int* count) {
  g_choices.push_back({static_cast<int64_t>(d->rows), static_cast<int64_t>(d->columns), preference->alignments[3],
                       preference->reductions});
  *count = most < 2 ? most : 2;
  for (int i = 0; i < *count; ++i) {
    found[i] = {};
    found[i].algorithm.data[0] = static_cast<uint64_t>(i + 1);
    found[i].status = Computes(found[i].algorithm, *d) ? 0 : kNotSupported;
  }
  return 0;
}
int cublasLtMatmulAlgoCheck(void*, Operation*, Layout*, Layout*, Layout*, Layout* d, const Algorithm* algorithm,
                            Found* found) {
  found->workspace_bytes = 0;
  return Computes(*algorithm, *d) ? 0 : kNotSupported;
}
// D = alpha A^T B + beta C, column by column, C = D.
int cublasLtMatmul(void*, Operation* operation, const float* alpha, const void* a, Layout* a_layout, const void* b,
                   Layout* b_layout, const float* beta, const void*, Layout*, void* d, Layout* d_layout,
                   const Algorithm* algorithm, void*, size_t, void*) {
  if (operation->transposed != 1 || a_layout->rows != b_layout->rows || a_layout->columns != d_layout->rows ||
      b_layout->columns != d_layout->columns || !Computes(*algorithm, *d_layout)) {
    return kNotSupported;
  }
  g_products.push_back({static_cast<int>(algorithm->data[0]), static_cast<int64_t>(d_layout->columns)});
  for (int64_t column = 0; column < static_cast<int64_t>(d_layout->columns); ++column) {
    for (int64_t row = 0; row < static_cast<int64_t>(d_layout->rows); ++row) {
      const int64_t at = column * d_layout->stride + row;
      double sum = *beta == 0 ? 0 : *beta * At(d, d_layout->type, at);
      for (int64_t k = 0; k < static_cast<int64_t>(a_layout->rows); ++k) {
        sum += *alpha * At(a, a_layout->type, row * a_layout->stride + k) *
               At(b, b_layout->type, column * b_layout->stride + k);
      }
      Put(d, d_layout->type, at, sum);
    }
  }
  return 0;
}

}  // extern "C"
