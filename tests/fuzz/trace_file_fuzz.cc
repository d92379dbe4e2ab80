// Request traces and length files: accepted files give a stream of requests in order, within the stated limits.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "sim/workload/trace_file.h"
#include "sim/workload/workload.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tactus;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto file = sim::TraceFile::Parse("fuzz.csv", text);
  if (!file.ok()) return 0;
  sim::ArrivalSpec poisson;
  poisson.rate_per_s = 2;
  sim::ArrivalSpec jitter;
  jitter.kind = sim::ArrivalSpec::Kind::kRecorded;
  jitter.jitter_s = 3;
  for (const sim::ArrivalSpec& arrivals : {sim::ArrivalSpec(), poisson, jitter}) {
    for (const double scale : {1.0, 1e-9, 1e9}) {
      sim::WorkloadSpec spec;
      spec.kind = sim::WorkloadSpec::Kind::kTrace;
      spec.file = "fuzz.csv";
      spec.rows = *file;
      spec.scale = scale;
      const auto rows = static_cast<int64_t>((*file)->rows().size());
      auto stream = sim::WorkloadStream::Open(spec, arrivals, rows + 3, 1);
      if (!stream.ok()) continue;
      sim::WorkloadRequest r;
      TimeNs before = 0;
      int64_t count = 0;
      for (; (*stream)->Next(&r); ++count) {
        const bool lengths = r.prompt_tokens >= 1 && r.prompt_tokens <= sim::kMaxTraceTokens && r.output_tokens >= 1 &&
                             r.output_tokens <= sim::kMaxTraceTokens && r.shared_tokens >= 0 &&
                             r.shared_tokens <= r.prompt_tokens;
        const auto objective = [](int64_t ns) { return ns >= 0 && ns <= 1'000'000 * kSecond; };
        const bool terms = objective(r.slo.ttft_ns) && objective(r.slo.tbt_ns) && objective(r.slo.jct_ns) &&
                           (r.slo.jct_ns == 0 || r.slo.ttft_ns <= r.slo.jct_ns) && r.slo_class.size() <= 64 &&
                           r.client.size() <= 1024 && r.predicted_output_tokens >= 0 &&
                           r.predicted_output_tokens <= sim::kMaxTraceTokens;
        const int64_t blocks = (r.prompt_tokens + sim::kHashBlockTokens - 1) / sim::kHashBlockTokens;
        if (!lengths || !terms || r.arrival_ns < before || static_cast<int64_t>(r.block_ids.size()) > blocks)
          std::abort();
        before = r.arrival_ns;
      }
      if (count != rows + 3) std::abort();
    }
  }
  return 0;
}
