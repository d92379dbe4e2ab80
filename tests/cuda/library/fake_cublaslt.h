// What fake_cublaslt.cc records.
#pragma once

#include <cstdint>
#include <vector>

struct FakeProduct {
  int algorithm = 0;
  int64_t columns = 0;
};
struct FakeChoice {  // a call of the heuristic
  int64_t rows = 0, columns = 0;
  uint32_t alignment = 0, reductions = 0;
};

using FakeProductsFunction = const std::vector<FakeProduct>&();  // "FakeProducts"
using FakeChoicesFunction = const std::vector<FakeChoice>&();    // "FakeChoices"
