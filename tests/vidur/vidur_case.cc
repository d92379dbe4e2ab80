#include "vidur/vidur_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tactus::vidur {

std::string Describe(const StepRow& r) {
  std::string s =
      fmt::format("[{:.9f}, {:.9f}] {} seq, {} + {} tokens, context {}, ids {}, {} blocks, {} waiting, prefills",
                  r.start_s, r.end_s, r.sequences, r.prefill_tokens, r.decode_tokens, r.decode_context_sum,
                  r.decode_id_sum, r.blocks_used, r.waiting);
  for (const Share& p : r.prefills) s += fmt::format(" {}:{}:{}", p.id, p.context, p.chunk);
  s += ", restarted";
  for (const Restart& p : r.restarted) s += fmt::format(" {}:{}:{}", p.id, p.processed, p.decoding ? 'd' : 'p');
  return s;
}

namespace {

bool SameIntegers(const StepRow& a, const StepRow& b) {
  return a.sequences == b.sequences && a.prefill_tokens == b.prefill_tokens && a.decode_tokens == b.decode_tokens &&
         a.decode_context_sum == b.decode_context_sum && a.decode_id_sum == b.decode_id_sum &&
         a.blocks_used == b.blocks_used && a.waiting == b.waiting && a.prefills == b.prefills &&
         a.restarted == b.restarted;
}

}  // namespace

Difference Compare(const Log& expected, const Log& actual) {
  Difference d;
  const auto time = [&d](double a, double b) { d.max_time_error_s = std::max(d.max_time_error_s, std::abs(a - b)); };
  const size_t rows = expected.steps.size();
  for (size_t i = 0; i < std::min(rows, actual.steps.size()); ++i) {
    const StepRow &e = expected.steps[i], &a = actual.steps[i];
    if (!SameIntegers(e, a)) {
      d.first = fmt::format("step {}:\n  expected {}\n  ours     {}", i, Describe(e), Describe(a));
      return d;
    }
    time(e.start_s, a.start_s);
    time(e.end_s, a.end_s);
    ++d.rows_compared;
  }
  if (expected.left_scope) return d;
  if (actual.steps.size() != rows) {
    d.first = fmt::format("{} steps expected, {} of ours", rows, actual.steps.size());
    return d;
  }
  if (expected.requests.size() != actual.requests.size()) {
    d.first = fmt::format("{} requests expected, {} of ours", expected.requests.size(), actual.requests.size());
    return d;
  }
  for (size_t id = 0; id < expected.requests.size(); ++id) {
    const RequestRow &e = expected.requests[id], &a = actual.requests[id];
    if (e.restarts != a.restarts || e.tokens_emitted != a.tokens_emitted) {
      d.first = fmt::format("request {}: {} restarts and {} tokens expected, {} and {} of ours", id, e.restarts,
                            e.tokens_emitted, a.restarts, a.tokens_emitted);
      return d;
    }
    time(e.scheduled_s, a.scheduled_s);
    time(e.first_token_s, a.first_token_s);
    time(e.completed_s, a.completed_s);
  }
  return d;
}

}  // namespace tactus::vidur
