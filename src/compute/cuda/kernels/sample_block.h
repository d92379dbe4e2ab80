// Device functions of a block of threads that samples from one row: selections by weight, without sorting, and the
// draw. For sample.cu alone.
//
// Selection halves no list: it counts the weights of keys into bins of a range of keys, finds the bin in which the sum
// reaches what is asked for, and goes on within that bin. Sums are of integers, so their order does not matter.
#pragma once

#include "compute/cuda/kernels/sample_row.h"

namespace tactus::compute::cuda {

inline constexpr int kSampleThreads = 512, kSampleWarps = kSampleThreads / 32;
inline constexpr int kBinBits = 11, kBins = 1 << kBinBits;
inline constexpr int kFirstGuess = 256;  // segments that usually hold top_p

TACTUS_DEVICE Sum WarpSum(Sum x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

struct Found {
  int index;
  Sum before;  // of the entries before it
};
struct Selected {
  uint32_t key;
  Sum need;    // what elements with this key must add
  Sum weight;  // of all elements with this key
};

// A block of kSampleThreads threads over one row. Its functions are called by all threads, with the same arguments.
struct RowBlock {
  RowLogits logits;
  bool raw;  // of the functions' logits
  int segments;
  Shared<Sum> bins;       // [kBins]
  Shared<Sum> weights;    // [segments]
  Shared<Sum> parts;      // [kSampleWarps]
  Shared<Sum> found;      // [2]
  Shared<uint32_t> keys;  // [segments], the largest of each

  // The sum over the threads, and over those before this one.
  TACTUS_DEVICE Sum Scan(Sum x, Sum* before) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    Sum inclusive = x;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Sum y = __shfl_up_sync(kAllLanes, inclusive, step);
      if (lane >= step) inclusive += y;
    }
    __syncthreads();  // the parts of the sum before have been read
    if (lane == 31) parts[warp] = inclusive;
    __syncthreads();
    Sum below = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kSampleWarps; ++w) {
      const Sum part = parts[w];
      if (w < warp) below += part;
      total += part;
    }
    *before = below + inclusive - x;
    return total;
  }

  // The first of `values` [n], or the last in `reverse`, where the sum up to it exceeds `target`; index n: none.
  TACTUS_DEVICE Found Find(const Shared<Sum>& values, int n, bool reverse, Sum target) const {
    const int each = (n + kSampleThreads - 1) / kSampleThreads, begin = static_cast<int>(threadIdx.x) * each;
    const int end = min(n, begin + each);
    Sum mine = 0, before = 0;
    for (int i = begin; i < end; ++i) mine += values[reverse ? n - 1 - i : i];
    const Sum total = Scan(mine, &before);
    if (total <= target) return {n, 0};
    if (before <= target && target - before < mine) {
      int i = begin;
      for (;; ++i) {
        const Sum value = values[reverse ? n - 1 - i : i];
        if (target - before < value) break;
        before += value;
      }
      found[0] = static_cast<Sum>(reverse ? n - 1 - i : i);
      found[1] = before;
    }
    __syncthreads();
    const Sum index = found[0], sum = found[1];
    return {static_cast<int>(index), sum};
  }

  // f(key, token, logit) for the tokens of segments whose largest key is at least `least`, by all lanes of a warp.
  template <class F>
  TACTUS_DEVICE void ForTokens(uint32_t least, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int s = static_cast<int>(threadIdx.x) / 32; s < segments; s += kSampleWarps) {
      if (keys[s] < least) continue;
      const int64_t begin = static_cast<int64_t>(s) * kSegment, first = begin + 4 * lane;
      Four x = logits.Raw(first);
      if (!raw) x = logits.Adjusted(x, begin, first);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + j < logits.view.vocab) f(KeyOf(x.v[j]), first + j, x.v[j]);
      }
    }
  }

  // The largest key such that the elements with keys from it up to `hi` weigh at least `need`. visit(lo, hi, add) calls
  // add(key, weight) for every element with a key in [lo, hi]. False: all of them weigh less.
  template <class Visit>
  TACTUS_DEVICE bool Select(uint32_t lo, uint32_t hi, Sum need, const Visit& visit, Selected* selected) const {
    while (true) {
      const int bits = 32 - __clz(static_cast<int>(hi - lo)), shift = bits > kBinBits ? bits - kBinBits : 0;
      const int n = static_cast<int>((hi - lo) >> shift) + 1;
      for (int i = static_cast<int>(threadIdx.x); i < n; i += kSampleThreads) bins[i] = 0;
      __syncthreads();
      visit(lo, hi, [&](uint32_t key, Sum weight) { bins.AtomicAdd(static_cast<int>((key - lo) >> shift), weight); });
      __syncthreads();
      const Found bin = Find(bins, n, true, need - 1);
      if (bin.index == n) return false;
      need -= bin.before;
      lo += static_cast<uint32_t>(bin.index) << shift;
      if (shift == 0) {
        const Sum weight = bins[bin.index];
        *selected = {lo, need, weight};
        __syncthreads();
        return true;
      }
      hi = min(hi, lo + ((1u << shift) - 1));
    }
  }

  // A key that at least `count` tokens reach, since as many segments do.
  TACTUS_DEVICE uint32_t Bound(int64_t count, uint32_t hi) const {
    const uint32_t lowest = KeyOf(kLowest);
    if (count > segments) return lowest;
    Selected selected;
    const auto visit = [&](uint32_t from, uint32_t to, const auto& add) {
      for (int s = static_cast<int>(threadIdx.x); s < segments; s += kSampleThreads) {
        const uint32_t key = keys[s];
        if (key >= from && key <= to) add(key, 1);
      }
    };
    return Select(lowest, hi, static_cast<Sum>(count), visit, &selected) ? selected.key : lowest;
  }

  // As Select, over tokens that `limit` keeps. `weights`, null: each counts 1.
  TACTUS_DEVICE bool SelectTokens(uint32_t lo, uint32_t hi, Sum need, const Limit& limit, const Weights* of,
                                  Selected* selected) const {
    const auto visit = [&](uint32_t from, uint32_t to, const auto& add) {
      ForTokens(from, [&](uint32_t key, int64_t token, float logit) {
        if (key < from || key > to || !limit.Keeps(key, token)) return;
        const Sum weight = of != nullptr ? of->Of(logit) : 1;
        if (weight > 0) add(key, weight);
      });
    };
    return Select(lo, hi, need, visit, selected);
  }

  // The limit that keeps `count` tokens of `key`, of which there are `all`.
  TACTUS_DEVICE Limit KeepTies(uint32_t key, Sum count, Sum all) const {
    const int64_t vocab = logits.view.vocab;
    if (count >= all) return {key, vocab};
    Selected selected{};
    const auto visit = [&](uint32_t from, uint32_t to, const auto& add) {
      ForTokens(key, [&](uint32_t k, int64_t token, float) {
        const uint32_t id = ~static_cast<uint32_t>(token);
        if (k == key && id >= from && id <= to) add(id, 1);
      });
    };
    Select(~static_cast<uint32_t>(vocab - 1), ~0u, count, visit, &selected);
    return {key, static_cast<int64_t>(~selected.key)};
  }

  // Keeps the first `count` tokens, 0 < count <= vocab.
  TACTUS_DEVICE Limit KeepBest(int64_t count, uint32_t hi) const {
    Selected selected{};
    const Limit all{0, logits.view.vocab};
    SelectTokens(Bound(count, hi), hi, static_cast<Sum>(count), all, nullptr, &selected);
    return KeepTies(selected.key, selected.need, selected.weight);
  }

  // Keeps the shortest prefix of what `limit` keeps that reaches top_p of its weight `total`.
  TACTUS_DEVICE Limit KeepTopP(const Limit& limit, const Weights& of, double top_p, Sum total, uint32_t hi) const {
    const double least = ceil(top_p * static_cast<double>(total));
    Sum need = least < 1.0 ? 1 : static_cast<Sum>(least);
    need = need < total ? need : total;
    Selected selected{};
    for (int64_t guess = kFirstGuess;; guess *= 8) {
      const uint32_t lo = max(Bound(guess, hi), limit.key);
      if (SelectTokens(lo, hi, need, limit, &of, &selected) || guess > segments) break;
    }
    const Sum each = of.Of(ValueOf(selected.key));
    Limit kept{selected.key, logits.view.vocab};
    if (selected.weight > each) kept = KeepTies(kept.key, (selected.need + each - 1) / each, selected.weight / each);
    if (kept.key == limit.key && kept.token > limit.token) kept.token = limit.token;
    return kept;
  }

  // weights[s] = what `limit` keeps of segment s. Returns their sum.
  TACTUS_DEVICE Sum Weigh(const Limit& limit, const Weights& of) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncthreads();
    for (int s = static_cast<int>(threadIdx.x) / 32; s < segments; s += kSampleWarps) {
      Sum sum = 0;
      if (keys[s] >= limit.key) sum = WarpSum(LaneWeights(s, limit, of, nullptr));
      if (lane == 0) weights[s] = sum;
    }
    __syncthreads();
    return Total();
  }

  TACTUS_DEVICE Sum Total() const {
    Sum mine = 0, before;
    for (int s = static_cast<int>(threadIdx.x); s < segments; s += kSampleThreads) mine += weights[s];
    return Scan(mine, &before);
  }

  // The sum of the weights of the lane's four tokens of segment s, and each of them unless `four` is null.
  TACTUS_DEVICE Sum LaneWeights(int s, const Limit& limit, const Weights& of, Sum* four) const {
    const int64_t begin = static_cast<int64_t>(s) * kSegment, first = begin + 4 * (static_cast<int>(threadIdx.x) % 32);
    const Four x = logits.Adjusted(logits.Raw(first), begin, first);
    Sum sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Sum weight = limit.Keeps(KeyOf(x.v[j]), first + j) ? of.Of(x.v[j]) : 0;
      if (four != nullptr) four[j] = weight;
      sum += weight;
    }
    return sum;
  }

  // The token at share u of the kept weight `total`, in id order; `weights` has it by segments.
  TACTUS_DEVICE int32_t Draw(double u, Sum total, const Limit& limit, const Weights& of) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Sum target = static_cast<Sum>(u * static_cast<double>(total));
    target = target < total - 1 ? target : total - 1;
    const Found at = Find(weights, segments, false, target);
    target -= at.before;
    Sum four[4];
    const Sum mine = LaneWeights(at.index, limit, of, four);
    Sum inclusive = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Sum y = __shfl_up_sync(kAllLanes, inclusive, step);
      if (lane >= step) inclusive += y;
    }
    Sum before = inclusive - mine;
    const bool has_it = before <= target && target < inclusive;
    int j = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (j == i && target - before >= four[i]) before += four[i], ++j;
    }
    const int32_t token = at.index * kSegment + 4 * lane + j;
    const unsigned lanes = __ballot_sync(kAllLanes, has_it ? 1 : 0);
    return __shfl_sync(kAllLanes, token, __ffs(static_cast<int>(lanes)) - 1);
  }

  // The first token with the largest key.
  TACTUS_DEVICE int32_t Argmax(uint32_t hi) const {
    if (threadIdx.x == 0) found[0] = 0;
    __syncthreads();
    ForTokens(hi, [&](uint32_t key, int64_t token, float) {
      if (key == hi) found.AtomicMax(0, static_cast<Sum>(logits.view.vocab - token));
    });
    __syncthreads();
    const Sum from_end = found[0];
    return static_cast<int32_t>(logits.view.vocab - static_cast<int64_t>(from_end));
  }

  TACTUS_DEVICE void LoadKeys(const Global<uint32_t>& from, int64_t first) const {
    for (int s = static_cast<int>(threadIdx.x); s < segments; s += kSampleThreads) keys[s] = from[first + s];
  }
};

}  // namespace tactus::compute::cuda
