#include "compute/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace tactus::compute {
namespace {

constexpr int64_t kBlock = 64;
constexpr float kWeightOne = 0x1.0p44f;  // 2^19 tokens of weight 1 stay below 2^63
constexpr int64_t kFirstGuess = 256;     // tokens that usually hold top_p
constexpr float kLowest = std::numeric_limits<float>::lowest();

// Four lanes on every machine: IEEE operations only, so the bits do not depend on the instruction set.
constexpr int64_t kLanes = 4;
typedef float Vec __attribute__((vector_size(16)));
typedef int32_t VecInt __attribute__((vector_size(16)));

Vec Load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
Vec Splat(float x) {
  return Vec{x, x, x, x};
}
Vec Max(Vec a, Vec b) {
  return a > b ? a : b;
}

// e^x for x <= 0, within 2 units in the last place; exactly 1 at 0; 0 below -87. Cody-Waite reduction to |r| <= ln2 /
// 2, then a Taylor polynomial of degree 7.
Vec Exp(Vec x) {
  const Vec shift = Splat(0x1.8p23f);
  const Vec clamped = Max(x, Splat(-87.0f));
  const Vec shifted = clamped * 1.44269504f + shift;
  const Vec n = shifted - shift;
  const Vec r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  Vec p = Splat(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
  const VecInt exponent = ((VecInt)shifted - (VecInt)shift + 127) << 23;
  const Vec result = p * (Vec)exponent;
  return x < -87.0f ? Splat(0.0f) : result;
}

// exp((row[i] - max) / temperature) of one block; entries beyond the row are 0. Returns the number of real entries.
int64_t BlockExp(std::span<const float> row, int64_t block, float max, float temperature, float* out) {
  const int64_t begin = block * kBlock;
  const int64_t n = std::min<int64_t>(kBlock, static_cast<int64_t>(row.size()) - begin);
  alignas(16) float tail[kBlock];
  const float* in = row.data() + begin;
  if (n < kBlock) {
    std::fill(tail, tail + kBlock, kLowest);
    std::copy(in, in + n, tail);
    in = tail;
  }
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    const Vec e = Exp((Load(in + i) - max) / temperature);
    __builtin_memcpy(out + i, &e, sizeof e);
  }
  std::fill(out + n, out + kBlock, 0.0f);
  return n;
}

}  // namespace

void SequenceHistory::Start(const SamplingSpec& spec, int32_t choice, int64_t vocab) {
  grammar_.reset();  // before the objects that it may refer to
  spec_ = {.params = spec.params,
           .prompt_logprobs = spec.prompt_logprobs,
           .max_tokens = spec.max_tokens,
           .grammar = spec.grammar,
           .unended_tokens = spec.unended_tokens,
           .ends = spec.ends};
  if (spec.prompt_logprobs) spec_.prompt = spec.prompt;  // needed row by row; all else is counted below
  choice_ = choice;
  seen_.clear();
  index_.clear();
  StartGrammar(spec);
  if (!spec_.params.NeedsHistory()) return;
  const int64_t tokens = static_cast<int64_t>(spec.prompt.size()) + std::max(spec_.max_tokens, 0);
  Grow(static_cast<size_t>(std::min(vocab, tokens)));
  if (spec_.params.repetition_penalty != 1.0f) {
    for (const TokenId t : spec.prompt) Count(t, 0);
  }
  for (const TokenId t : spec.output) Count(t, 1);
}

void SequenceHistory::StartGrammar(const SamplingSpec& spec) {
  grammar_status_ = ItemStatus::kOk;
  if (spec.grammar == nullptr) return;
  grammar_ = spec.grammar->Start();
  if (grammar_ == nullptr) {
    grammar_status_ = ItemStatus::kFailed;
    return;
  }
  for (const TokenId token : spec.output) {
    if (!grammar_->Accept(token)) grammar_status_ = ItemStatus::kBadGrammar;
  }
}

bool SequenceHistory::Append(TokenId token) {
  if (!index_.empty()) Count(token, 1);
  if (spec_.unended_tokens > 0) --spec_.unended_tokens;
  return grammar_ == nullptr || grammar_->Accept(token);
}

void SequenceHistory::Count(TokenId token, int32_t outputs) {
  const size_t mask = index_.size() - 1;
  size_t at = (static_cast<uint32_t>(token) * 2654435769u) & mask;
  for (; index_[at] >= 0; at = (at + 1) & mask) {
    Seen& entry = seen_[static_cast<size_t>(index_[at])];
    if (entry.token == token) {
      entry.outputs += outputs;
      return;
    }
  }
  if (seen_.size() * 2 >= index_.size()) {
    Grow(seen_.size() * 2);
    Count(token, outputs);
    return;
  }
  index_[at] = static_cast<int32_t>(seen_.size());
  seen_.push_back({token, outputs});
}

// Room for `entries` unique tokens at a load of at most one half.
void SequenceHistory::Grow(size_t entries) {
  size_t slots = 16;
  while (slots < entries * 2 + 2) slots *= 2;
  const std::vector<Seen> old = std::move(seen_);
  seen_.clear();
  seen_.reserve(slots / 2);
  index_.assign(slots, -1);
  for (const Seen& entry : old) Count(entry.token, entry.outputs);
}

void SequenceHistory::Adjust(std::span<float> logits, std::vector<std::pair<TokenId, float>>* before) const {
  const SamplingParams& p = spec_.params;
  auto change = [&](TokenId token, auto&& fn) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) return;
    float& logit = logits[static_cast<size_t>(token)];
    if (before != nullptr) before->emplace_back(token, logit);
    const float changed = fn(logit);
    // Finite logits stay finite for any parameters; other values are found later.
    logit = std::isfinite(logit) ? std::clamp(changed, kLowest, -kLowest) : changed;
  };
  for (const auto& [token, bias] : p.logit_bias) {
    change(token, [b = bias](float l) { return l + b; });
  }
  for (const Seen& entry : seen_) {
    change(entry.token, [&](float l) {
      l = l > 0.0f ? l / p.repetition_penalty : l * p.repetition_penalty;
      l -= p.frequency_penalty * static_cast<float>(entry.outputs);
      return entry.outputs > 0 ? l - p.presence_penalty : l;
    });
  }
  if (spec_.unended_tokens == 0) return;
  // The level of tokens that a grammar forbids: below every other token. The grammar applies next and lifts an allowed
  // end above the tokens that it forbids, so an end is sampled where no other token is allowed.
  for (const TokenId end : spec_.ends) {
    change(end, [](float l) { return std::isfinite(l) ? kLowest : l; });
  }
}

ItemStatus SequenceHistory::FillMask(std::span<uint32_t> mask) const {
  if (grammar_status_ != ItemStatus::kOk) return grammar_status_;
  if (!grammar_->FillMask(mask)) return ItemStatus::kBadGrammar;
  const bool any = std::any_of(mask.begin(), mask.end(), [](uint32_t word) { return word != 0; });
  return any ? ItemStatus::kOk : ItemStatus::kBadGrammar;
}

ItemStatus SequenceHistory::Restrict(std::span<float> logits, std::span<uint32_t> mask) const {
  if (grammar_status_ != ItemStatus::kOk || grammar_ == nullptr) return grammar_status_;
  const ItemStatus status = FillMask(mask);
  if (status != ItemStatus::kOk) return status;
  // Allowed logits stay above forbidden ones, however much bias and penalties lower them.
  constexpr float kLowestAllowed = kLowest / 2;
  bool any = false;
  for (size_t first = 0; first < logits.size(); first += 32) {
    const uint32_t word = mask[first / 32];
    const size_t count = std::min<size_t>(32, logits.size() - first);
    float* const row = logits.data() + first;
    if (word == 0) {
      std::fill_n(row, count, kLowest);
      continue;
    }
    any = any || count == 32 || (word & ((uint32_t{1} << count) - 1)) != 0;
    for (size_t i = 0; i < count; ++i) row[i] = (word >> i & 1) != 0 ? std::max(row[i], kLowestAllowed) : kLowest;
  }
  return any ? ItemStatus::kOk : ItemStatus::kBadGrammar;
}

Sampler::Sampler(int64_t vocab) : vocab_(vocab) {
  const auto blocks = static_cast<size_t>((vocab + kBlock - 1) / kBlock);
  block_max_.resize(blocks);
  bounds_.resize(blocks);
  block_weight_.resize(blocks);
  mask_.resize(static_cast<size_t>((vocab + 31) / 32));
  candidates_.reserve(static_cast<size_t>(vocab));
}

SampledToken Sampler::Sample(const SequenceHistory& history, int64_t position, std::span<float> logits,
                             std::vector<TokenLogprob>* logprobs) {
  const SamplingParams& params = history.spec().params;
  const bool wants_logprobs = logprobs != nullptr && params.logprobs >= 0;
  double log_sum = 0.0;
  std::vector<std::pair<TokenId, float>> raw;
  if (wants_logprobs) {
    if (!Logprobs(logits, 0, params.logprobs, logprobs)) return {ItemStatus::kBadLogits, -1};
    log_sum = LogSumExp();
  }
  history.Adjust(logits, wants_logprobs ? &raw : nullptr);
  if (history.spec().grammar != nullptr) {
    if (!Scan(logits)) return {ItemStatus::kBadLogits, -1};  // before values that are not finite are overwritten
    const ItemStatus restricted = history.Restrict(logits, mask_);
    if (restricted != ItemStatus::kOk) return {restricted, -1};
  }
  if (!Scan(logits)) return {ItemStatus::kBadLogits, -1};
  SampledToken result;
  if (params.temperature == 0.0f) {
    result.token = Argmax();
  } else {
    Shape(params);
    result.token =
        Draw(UniformAt(params.seed, static_cast<uint64_t>(history.choice()), static_cast<uint64_t>(position)));
  }
  if (wants_logprobs) {
    float logit = logits[static_cast<size_t>(result.token)];
    for (const auto& [token, value] : raw) {
      if (token == result.token) {
        logit = value;  // the first entry of a token is its raw value
        break;
      }
    }
    logprobs->front() = {result.token, static_cast<float>(logit - log_sum)};
  }
  return result;
}

bool Sampler::Logprobs(std::span<const float> logits, TokenId chosen, int32_t k, std::vector<TokenLogprob>* out) {
  if (!Scan(logits)) return false;
  const double log_sum = LogSumExp();
  const int64_t best = std::min<int64_t>(k, vocab_);
  out->clear();
  out->reserve(static_cast<size_t>(best) + 1);
  out->push_back({chosen, static_cast<float>(logits[static_cast<size_t>(chosen)] - log_sum)});
  if (best == 0) return true;
  Gather(best);
  std::partial_sort(candidates_.begin(), candidates_.begin() + best, candidates_.end(), Before);
  for (int64_t i = 0; i < best; ++i) {
    const Candidate& c = candidates_[static_cast<size_t>(i)];
    out->push_back({c.token, static_cast<float>(c.logit - log_sum)});
  }
  return true;
}

bool Sampler::Scan(std::span<const float> logits) {
  row_ = logits;
  const int64_t whole = vocab_ / kBlock;
  Vec finite = Splat(0.0f);  // stays 0: x * 0 is NaN for an infinity or a NaN
  for (int64_t b = 0; b < whole; ++b) {
    const float* in = logits.data() + b * kBlock;
    Vec best = Load(in);
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      const Vec x = Load(in + i);
      best = Max(best, x);
      finite += x * 0.0f;
    }
    block_max_[static_cast<size_t>(b)] = std::max(std::max(best[0], best[1]), std::max(best[2], best[3]));
  }
  float check = finite[0] + finite[1] + finite[2] + finite[3];
  if (whole * kBlock < vocab_) {
    float best = kLowest;
    for (int64_t i = whole * kBlock; i < vocab_; ++i) {
      const float x = logits[static_cast<size_t>(i)];
      best = std::max(best, x);
      check += x * 0.0f;
    }
    block_max_.back() = best;
  }
  if (!(check == 0.0f)) return false;
  max_ = *std::max_element(block_max_.begin(), block_max_.end());
  return true;
}

TokenId Sampler::Argmax() const {
  const auto block = std::find(block_max_.begin(), block_max_.end(), max_) - block_max_.begin();
  const auto begin = row_.begin() + block * kBlock;
  return static_cast<TokenId>(std::find(begin, row_.end(), max_) - row_.begin());
}

// candidates_ = every token with a logit >= some bound, at least `at_least` of them: that many blocks have a maximum >=
// the bound, so the bound is at most the at_least-th best logit.
void Sampler::Gather(int64_t at_least) {
  float bound = kLowest;
  if (at_least <= static_cast<int64_t>(block_max_.size())) {
    bounds_ = block_max_;
    const auto nth = bounds_.begin() + (at_least - 1);
    std::nth_element(bounds_.begin(), nth, bounds_.end(), std::greater<float>());
    bound = *nth;
  }
  candidates_.clear();
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (block_max_[b] < bound) continue;
    const int64_t begin = static_cast<int64_t>(b) * kBlock, end = std::min(begin + kBlock, vocab_);
    for (int64_t i = begin; i < end; ++i) {
      const float logit = row_[static_cast<size_t>(i)];
      if (logit >= bound) candidates_.push_back({logit, static_cast<TokenId>(i)});
    }
  }
}

void Sampler::Shape(const SamplingParams& params) {
  temperature_ = params.temperature;
  min_p_ = params.min_p;
  last_ = {kLowest, std::numeric_limits<TokenId>::max()};
  if (params.top_k > 0 && params.top_k < vocab_) {
    Gather(params.top_k);
    const auto kth = candidates_.begin() + (params.top_k - 1);
    std::nth_element(candidates_.begin(), kth, candidates_.end(), Before);
    last_ = *kth;
  }
  total_weight_ = SumWeights();
  if (params.top_p < 1.0f) KeepTopP(static_cast<double>(params.top_p));
}

// Moves last_ to where the kept weight first reaches top_p of the total: selection by weight, halving the range with
// the border each time.
void Sampler::KeepTopP(double top_p) {
  auto need = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total_weight_))));
  need = std::min(need, total_weight_);
  auto sum = [](auto begin, auto end) {
    uint64_t s = 0;
    for (auto it = begin; it != end; ++it) s += it->weight;
    return s;
  };
  for (int64_t guess = kFirstGuess;; guess *= 8) {
    Gather(std::min(guess, vocab_));
    std::erase_if(candidates_, [this](const Candidate& c) { return Before(last_, c); });
    for (Candidate& c : candidates_) {
      const Vec e = Exp((Splat(c.logit) - max_) / temperature_);
      c.weight = WeightOf(e[0]);
    }
    if (guess >= vocab_ || sum(candidates_.begin(), candidates_.end()) >= need) break;
  }
  auto begin = candidates_.begin(), end = candidates_.end();
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, Before);
    const uint64_t left = sum(begin, middle);
    if (left >= need) {
      end = middle;
    } else {
      need -= left;
      begin = middle;
    }
  }
  last_ = *begin;
  total_weight_ = SumWeights();
}

uint64_t Sampler::WeightOf(float exponential) const {
  return exponential < min_p_ ? 0 : static_cast<uint64_t>(static_cast<int64_t>(exponential * kWeightOne));
}

// Weights of one block's kept tokens into weights[64] (may be null); their sum.
uint64_t Sampler::BlockWeights(int64_t block, uint64_t* weights) const {
  alignas(16) float e[kBlock];
  const int64_t n = BlockExp(row_, block, max_, temperature_, e);
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t token = block * kBlock + i;
    const bool kept = !Before(last_, {row_[static_cast<size_t>(token)], static_cast<TokenId>(token)});
    const uint64_t w = kept ? WeightOf(e[i]) : 0;
    if (weights != nullptr) weights[i] = w;
    sum += w;
  }
  return sum;
}

uint64_t Sampler::SumWeights() {
  uint64_t total = 0;
  for (size_t b = 0; b < block_max_.size(); ++b) {
    block_weight_[b] = block_max_[b] < last_.logit ? 0 : BlockWeights(static_cast<int64_t>(b), nullptr);
    total += block_weight_[b];
  }
  return total;
}

TokenId Sampler::Draw(double u) const {
  uint64_t target = std::min(static_cast<uint64_t>(u * static_cast<double>(total_weight_)), total_weight_ - 1);
  size_t block = 0;
  while (target >= block_weight_[block]) target -= block_weight_[block++];
  uint64_t weights[kBlock];
  BlockWeights(static_cast<int64_t>(block), weights);
  int64_t i = 0;
  while (target >= weights[i]) target -= weights[i++];
  return static_cast<TokenId>(static_cast<int64_t>(block) * kBlock + i);
}

double Sampler::Probability(TokenId token) const {
  uint64_t weights[kBlock];
  if (block_max_[static_cast<size_t>(token / kBlock)] < last_.logit) return 0.0;
  BlockWeights(token / kBlock, weights);
  return static_cast<double>(weights[token % kBlock]) / static_cast<double>(total_weight_);
}

// log(sum(exp(row))), blocks added in ascending order.
double Sampler::LogSumExp() const {
  double total = 0.0;
  for (size_t b = 0; b < block_max_.size(); ++b) {
    alignas(16) float e[kBlock];
    BlockExp(row_, static_cast<int64_t>(b), max_, 1.0f, e);
    Vec sums = Load(e);
    for (int64_t i = kLanes; i < kBlock; i += kLanes) sums += Load(e + i);
    total += static_cast<double>(sums[0]) + sums[1] + sums[2] + sums[3];
  }
  return static_cast<double>(max_) + std::log(total);
}

}  // namespace tactus::compute
