#include "offline/plan/prompt_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tactus::offline {
namespace {

// For two chunked arrays, and for allocations that do not depend on the number of prompts.
constexpr int64_t kFixedBytes = 1 << 20;

int64_t BytesOf(int64_t prompts, int64_t keys) {
  return kFixedBytes + prompts * kPlannerBytesPerPrompt + keys * static_cast<int64_t>(sizeof(uint64_t));
}

}  // namespace

int64_t PlannerMemory(int64_t prompts, int64_t tokens, int32_t key_tokens) {
  return BytesOf(prompts, tokens / key_tokens);
}

PromptSet::PromptSet(int64_t memory_limit_bytes, int32_t key_tokens)
    : memory_limit_bytes_(memory_limit_bytes), finest_(key_tokens), key_tokens_(key_tokens) {
  TACTUS_CHECK(key_tokens >= 1);
}

int64_t PromptSet::planner_bytes() const {
  return BytesOf(size(), static_cast<int64_t>(keys_.size()));
}

Status PromptSet::Begin(int64_t prompt_tokens, const RequestTraits& traits, Record* record) const {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (prompt_tokens < 1 || prompt_tokens > kMost) {
    return InvalidArgument(
        fmt::format("request {} has {} prompt tokens; it must have 1 to {}", size(), prompt_tokens, kMost), "prompt");
  }
  if (traits.max_output_tokens < 1 || traits.max_output_tokens > kMost / 2) {
    return InvalidArgument(fmt::format("request {} may generate {} tokens; it must be 1 to {}", size(),
                                       traits.max_output_tokens, kMost / 2),
                           "max_tokens");
  }
  if (size() == std::numeric_limits<int32_t>::max() / 2) {
    return InvalidArgument(fmt::format("a job has at most {} requests; split it", size()));
  }
  *record = {.first_key = static_cast<int64_t>(keys_.size()), .prompt_tokens = static_cast<int32_t>(prompt_tokens)};
  record->max_output_tokens = traits.max_output_tokens;
  record->output_is_known = traits.output_is_known ? 1 : 0;
  record->group = traits.group;
  return Status();
}

Status PromptSet::Add(std::span<const TokenId> prompt, const RequestTraits& traits) {
  Record record;
  TACTUS_RETURN_IF_ERROR(Begin(static_cast<int64_t>(prompt.size()), traits, &record));
  // Hashed by token, not by block: a key does not depend on how many keys are kept.
  uint64_t hash = 0;
  const size_t keyed = (prompt.size() - 1) / static_cast<size_t>(key_tokens_) * static_cast<size_t>(key_tokens_);
  auto until_key = key_tokens_;
  for (size_t i = 0; i < keyed; ++i) {
    hash = MixHash(hash, static_cast<uint64_t>(static_cast<uint32_t>(prompt[i])));
    if (--until_key > 0) continue;
    keys_.push_back(hash);
    until_key = key_tokens_;
  }
  return Finish(record);
}

Status PromptSet::AddKeys(std::span<const Hash128> keys, int32_t prompt_tokens, const RequestTraits& traits) {
  Record record;
  TACTUS_RETURN_IF_ERROR(Begin(prompt_tokens, traits, &record));
  const auto stride = static_cast<size_t>(key_tokens_ / finest_);
  const size_t most = std::min(keys.size(), static_cast<size_t>((prompt_tokens - 1) / finest_));
  for (size_t i = stride; i <= most; i += stride) keys_.push_back(keys[i - 1].low);
  return Finish(record);
}

Status PromptSet::Finish(Record record) {
  record.num_keys = static_cast<int32_t>(static_cast<int64_t>(keys_.size()) - record.first_key);
  records_.push_back(record);
  total_prompt_tokens_ += record.prompt_tokens;
  while (memory_limit_bytes_ > 0 && planner_bytes() > memory_limit_bytes_) {
    if (keys_.size() > 0) {
      Coarsen();
      continue;
    }
    total_prompt_tokens_ -= record.prompt_tokens;
    records_.Truncate(records_.size() - 1);
    return Status(StatusCode::kTooLarge,
                  fmt::format("{} requests do not fit the planner's memory of {} bytes, not even without keys of their "
                              "prompts: allow {} bytes per request and {} more, or split the job",
                              size() + 1, memory_limit_bytes_, kPlannerBytesPerPrompt, kFixedBytes),
                  "planner-memory");
  }
  return Status();
}

void PromptSet::Coarsen() {
  size_t kept = 0;
  for (size_t i = 0; i < records_.size(); ++i) {
    Record& r = records_[i];
    const auto first = static_cast<int64_t>(kept);
    for (int32_t k = 1; k < r.num_keys; k += 2) keys_[kept++] = KeyAt(r, k);
    r.first_key = first;
    r.num_keys /= 2;
  }
  keys_.Truncate(kept);
  key_tokens_ *= 2;
}

int32_t PromptSet::SharedKeys(int32_t a, int32_t b) const {
  const Record &x = At(a), &y = At(b);
  if (x.group != y.group) return -1;
  const int32_t most = std::min(x.num_keys, y.num_keys);
  if (most == 0 || KeyAt(x, 0) != KeyAt(y, 0)) return 0;
  // Keys equal at one position are equal at all earlier ones.
  int32_t shared = 1, differ = most + 1;  // numbers of keys: known to be shared; known not to be
  while (differ - shared > 1) {
    const int32_t middle = shared + (differ - shared) / 2;
    (KeyAt(x, middle - 1) == KeyAt(y, middle - 1) ? shared : differ) = middle;
  }
  return shared;
}

bool PromptSet::SortsBefore(int32_t a, int32_t b) const {
  const Record &x = At(a), &y = At(b);
  if (x.group != y.group) return x.group < y.group;
  const int32_t shared = SharedKeys(a, b);
  const bool a_ends = shared == x.num_keys, b_ends = shared == y.num_keys;
  if (a_ends || b_ends) return a_ends != b_ends ? a_ends : a < b;
  return KeyAt(x, shared) < KeyAt(y, shared);
}

}  // namespace tactus::offline
