#include "cost/attention_tables.h"

#include <algorithm>
#include <cmath>

namespace tactus::cost {
namespace {

constexpr double kGridChunk = 131072, kGridContext = 262144, kGridBatch = 2048;

}  // namespace

AttentionTables::AttentionTables(const OperatorTimes& o, const AttentionShape& shape, const VisibleSpan& span)
    : shape_(shape),
      span_(span),
      prefill_base_ns_(o.PrefillBaseNs(shape)),
      adds_(kGridChunk, kGridContext),
      alone_(kGridChunk, kGridContext),
      decode_(kGridBatch, kGridContext),
      beside_(kGridBatch, kGridContext) {
  // A long part of a prompt is a row of pieces, each attending to its own window or chunk.
  adds_.Fill([&](double tokens, double context) {
    if (tokens == 0) return 0.0;
    const double piece = std::min(tokens, span_.most());
    return o.PrefillAddsNs(shape_, piece, span_.Seen(context, piece)) * (tokens / piece);
  });
  alone_.Fill([&](double tokens, double context) {
    if (tokens == 0) return 0.0;
    const double piece = std::min(tokens, span_.most()), rest = tokens / piece - 1, seen = span_.Seen(context, piece);
    return o.PrefillAloneNs(shape_, piece, seen) + rest * o.PrefillAddsNs(shape_, piece, seen);
  });
  decode_.Fill([&](double batch, double mean_context) {
    return batch == 0 ? 0.0 : o.DecodeNs(shape_, batch, span_.Seen(mean_context));
  });
  beside_.Fill([&](double batch, double mean_context) {
    if (batch == 0) return 0.0;
    // A chunk costs at least the kernel's base, and a step with it is not faster than without.
    const double context = span_.Seen(mean_context);
    return std::max(o.DecodeBesideChunkNs(shape_, batch, context),
                    o.DecodeNs(shape_, batch, context) - prefill_base_ns_);
  });
}

// Windows and chunks cut off the front of a sequence, and with it the shared part.
bool AttentionTables::ReadsTogether(const StepShape& step) const {
  return !step.prefixes.empty() && std::isinf(span_.most());
}

// The chunks of one step run in one kernel: see OperatorTimes.
AttentionParts AttentionTables::Apart(const StepShape& step) const {
  double sum = prefill_base_ns_, longest = 0;
  for (const ChunkShape& chunk : step.chunks) {
    sum += adds_.At(chunk.tokens, chunk.context_tokens);
    longest = std::max(longest, alone_.At(chunk.tokens, chunk.context_tokens));
  }
  if (step.chunks.empty()) sum = 0;
  return PartsOf(step, sum, longest, step.decode_context_tokens);
}

// Cascade attention (Juravsky et al. 2024, Ye et al. 2024): a prefix is one more chunk in the chunks' kernel, with one
// query per decode that shares it; the decodes' kernel reads their own parts. The merge of both, a few hundred bytes
// per head, is neglected.
AttentionParts AttentionTables::Cascade(const StepShape& step) const {
  double sum = prefill_base_ns_, longest = 0;
  const auto add = [&](int32_t tokens, int32_t context) {
    sum += adds_.At(tokens, context);
    longest = std::max(longest, alone_.At(tokens, context));
  };
  for (const ChunkShape& chunk : step.chunks) add(chunk.tokens, chunk.context_tokens);
  int64_t own_tokens = step.decode_context_tokens;
  for (const PrefixShape& prefix : step.prefixes) {
    add(prefix.decodes, prefix.tokens);
    own_tokens -= int64_t{prefix.tokens} * prefix.decodes;
  }
  return PartsOf(step, sum, longest, own_tokens);
}

AttentionParts AttentionTables::PartsOf(const StepShape& step, double chunks_sum_ns, double longest_ns,
                                        int64_t own_tokens) const {
  AttentionParts parts;
  parts.chunks_ns = std::max(chunks_sum_ns, longest_ns);
  if (step.decodes == 0) return parts;
  const double decodes = static_cast<double>(step.decodes), context = static_cast<double>(own_tokens) / decodes;
  parts.own_kernel_ns = decode_.At(decodes, context);
  parts.decodes_ns = step.chunks.empty() ? parts.own_kernel_ns : beside_.At(decodes, context);
  return parts;
}

}  // namespace tactus::cost
