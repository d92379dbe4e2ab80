// Device functions for sampling: a row's logits by segments, and what a sequence's parameters make of them. For
// kernels' sources alone.
#pragma once

#include "compute/cuda/kernels/device.h"
#include "compute/cuda/kernels/packs.h"
#include "compute/cuda/kernels/sample.h"
#include "compute/cuda/kernels/sample_weights.h"

namespace tactus::compute::cuda {

inline constexpr int kSegment = 128;              // tokens; lane l of a warp has [4 l, 4 l + 4) of them
inline constexpr uint32_t kBadKey = 0xffffffffu;  // of a segment with a logit that is not finite

// The memory of a launch.
struct SampleView {
  Global<const float> logits;
  Global<const SampleRow> rows;
  Global<const uint32_t> counts, masks;
  Global<const int32_t> bias_tokens, end_tokens, draft_tokens;
  Global<const float> bias_values;
  int64_t vocab;
  int segments;
  bool wide;  // rows of logits and of counts can be loaded 16 bytes at a time
};

// Four neighbouring tokens of a lane.
struct Four {
  float v[4];
};

// The first entry of tokens [first, first + count), ascending, that is not below `token`.
TACTUS_DEVICE int LowerBound(const Global<const int32_t>& tokens, int first, int count, int64_t token) {
  int begin = first, end = first + count;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (tokens[middle] < token) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Finite logits stay finite for any parameters.
TACTUS_DEVICE float Clamped(float before, float after) {
  return IsFinite(before) ? fminf(fmaxf(after, kLowest), -kLowest) : after;
}

TACTUS_DEVICE float Penalised(float l, uint32_t count, const SampleRow& row) {
  if (count == 0) return l;
  const uint32_t outputs = count & ~kInPrompt;
  float x = l > 0.0f ? Div(l, row.repetition) : Mul(l, row.repetition);
  x = Add(x, -Mul(row.frequency, static_cast<float>(static_cast<int32_t>(outputs))));
  if (outputs > 0) x = Add(x, -row.presence);
  return Clamped(l, x);
}

// One row: its logits as they are, and after bias, penalties, min_tokens and mask.
struct RowLogits {
  const SampleView& view;
  const SampleRow& row;
  int64_t at;  // of its first logit

  // Tokens [first, first + 4) of the row; -inf beyond its end.
  TACTUS_DEVICE Four Raw(int64_t first) const {
    Four x;
    if (view.wide && first + 4 <= view.vocab) {
      LoadValues<4>(view.logits, at + first, x.v);
      return x;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      x.v[j] = ValueOf(0x007fffffu);
      if (first + j < view.vocab) x.v[j] = view.logits[at + first + j];
    }
    return x;
  }

  TACTUS_DEVICE bool changes() const {
    return row.num_biases > 0 || row.counts >= 0 || row.num_ends > 0 || row.mask >= 0;
  }

  // What `raw` at `first` becomes, in the order of SequenceHistory::Adjust and Restrict; `segment`: its first token.
  TACTUS_DEVICE Four Adjusted(Four raw, int64_t segment, int64_t first) const {
    if (!changes()) return raw;
    const int64_t end = segment + kSegment;
    Four x = raw;
    if (row.num_biases > 0) {
      const int last = row.bias + row.num_biases;
      for (int e = LowerBound(view.bias_tokens, row.bias, row.num_biases, segment); e < last; ++e) {
        const int64_t token = view.bias_tokens[e];
        if (token >= end) break;
        const float bias = view.bias_values[e];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (token == first + j) x.v[j] = Clamped(x.v[j], Add(x.v[j], bias));
        }
      }
    }
    if (row.counts >= 0) Penalise(&x, first);
    if (row.num_ends > 0) {
      const int last = row.ends + row.num_ends;
      for (int e = LowerBound(view.end_tokens, row.ends, row.num_ends, segment); e < last; ++e) {
        const int64_t token = view.end_tokens[e];
        if (token >= end) break;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (token == first + j && IsFinite(x.v[j])) x.v[j] = kLowest;
        }
      }
    }
    if (row.mask >= 0 && first < view.vocab) {
      const int64_t words = (view.vocab + 31) / 32;
      const uint32_t allowed = view.masks[row.mask * words + first / 32] >> (first % 32);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + j < view.vocab) x.v[j] = (allowed >> j & 1u) != 0 ? fmaxf(x.v[j], kLowest / 2) : kLowest;
      }
    }
    return x;
  }

  TACTUS_DEVICE void Penalise(Four* x, int64_t first) const {
    const int64_t counts = row.counts * view.vocab;
    uint32_t count[4] = {};
    if (view.wide && first + 4 <= view.vocab) {
      const uint4 four = view.counts.template Load<uint4>(counts + first);
      count[0] = four.x, count[1] = four.y, count[2] = four.z, count[3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + j < view.vocab) count[j] = view.counts[counts + first + j];
      }
    }
    for (int e = row.draft; e < row.draft + row.num_drafts; ++e) {
      const int64_t token = view.draft_tokens[e];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (token == first + j) ++count[j];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) x->v[j] = Penalised(x->v[j], count[j], row);
  }
};

// A prefix of the order of tokens: up to this key and, at this key, this id.
struct Limit {
  uint32_t key;
  int64_t token;
  TACTUS_DEVICE bool Keeps(uint32_t k, int64_t t) const { return k > key || (k == key && t <= token); }
};

}  // namespace tactus::compute::cuda
