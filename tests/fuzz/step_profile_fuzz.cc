// Step profiles, tables of step times and coefficient files: accepted files predict times from 0 to the limit of the
// clock.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "cost/coefficient_file.h"
#include "cost/step_tables/step_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(cost::ParseCoefficients(text, "fuzz.json"));
  static_cast<void>(cost::ParseBesideChunk(text, "fuzz.json"));
  if (std::count(text.begin(), text.end(), '\n') > 60) return 0;  // the time of a fit grows with its rows
  const auto profile = cost::ParseStepProfile("fuzz.csv", text);
  if (!profile.ok()) return 0;
  const ChunkShape chunks[] = {{0, 1}, {100, 512}, {1 << 20, 1 << 20}, {1 << 24, 1 << 24}};
  for (size_t count = 0; count <= 4; ++count) {
    for (const int64_t decodes : {int64_t{0}, int64_t{1}, int64_t{256}, int64_t{1} << 24}) {
      StepShape shape;
      shape.chunks = {chunks, count};
      shape.decodes = decodes;
      shape.decode_context_tokens = decodes * 1000;
      const DurationNs ns = (*profile)->StepTimeNs(shape);
      if (ns < 0 || static_cast<double>(ns) > cost::kLongestStepNs) std::abort();
      if ((*profile)->Describe().empty()) std::abort();
      static_cast<void>((*profile)->Extrapolation(shape));
    }
  }
  if (!std::isfinite((*profile)->error().left_out_median)) std::abort();
  return 0;
}
