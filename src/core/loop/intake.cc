#include "core/loop/intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/context_room.h"
#include "base/printable.h"
#include "core/kv/block_key.h"

namespace tactus::core {
namespace {

constexpr DurationNs kLongestWaitNs = 3600 * kSecond;  // the clock can represent a time that far ahead

Hash128 RootKeyOf(const Request& request, const IntakeLimits& limits) {
  return RootKey(limits.secret, limits.model, request.adapter, request.cache_salt);
}

// -1: the request has no adapter, or an unknown one.
int32_t AdapterIndex(const Request& request, const IntakeLimits& limits) {
  const auto found = std::find(limits.adapters.begin(), limits.adapters.end(), request.adapter);
  return found == limits.adapters.end() ? -1 : static_cast<int32_t>(found - limits.adapters.begin());
}

Status CheckAdapter(const Request& request, const IntakeLimits& limits) {
  if (request.adapter.empty() || AdapterIndex(request, limits) >= 0) return Status();
  return InvalidArgument(
      limits.adapters.empty()
          ? fmt::format("adapter '{}': this engine has loaded none; leave it out", Printable(request.adapter))
          : fmt::format("adapter '{}' is not loaded; known: {}", Printable(request.adapter),
                        fmt::join(limits.adapters, ", ")),
      "adapter");
}

Status CheckFits(const Request& request, int64_t prompt_tokens, const IntakeLimits& limits) {
  TACTUS_RETURN_IF_ERROR(CheckAdapter(request, limits));
  if (prompt_tokens < 1) return InvalidArgument("the prompt is empty; it needs at least 1 token", "prompt");
  if (request.stop.max_tokens < 1) {
    return InvalidArgument(fmt::format("max_tokens is {}; it must be at least 1", request.stop.max_tokens),
                           "max_tokens");
  }
  if (request.n < 1 || request.n > limits.max_queue) {
    return InvalidArgument(
        fmt::format("n is {}; it must be between 1 and {} (--max-queue)", request.n, limits.max_queue), "n");
  }
  if (const PlannedPlace& place = request.planned;
      place.kv_tokens < 0 || place.position < -1 || place.density < 0 || place.step_tokens < 0) {
    return InvalidArgument(
        fmt::format("place in a plan: position {}, {} KV tokens, density {}, {} tokens of a step; none may be negative "
                    "(but for position -1: no plan)",
                    place.position, place.kv_tokens, place.density, place.step_tokens),
        "planned");
  }
  if (const PlannedPlace& place = request.planned; place.position < 0 && place.end != PlanEnd::kNone) {
    return InvalidArgument("place in a plan: an end without a position; state both, or neither", "planned");
  }
  const int64_t longest = prompt_tokens + request.stop.max_tokens;
  TACTUS_RETURN_IF_ERROR(CheckContext(prompt_tokens, request.stop.max_tokens, limits.max_model_len));
  const int64_t blocks = (longest + limits.block_size - 1) / limits.block_size;
  if (blocks > limits.blocks_total) {
    return InvalidArgument(
        fmt::format(
            "prompt of {} tokens + max_tokens {} needs {} KV blocks of {} tokens and there are {}; lower max_tokens "
            "or raise --kv-cache-memory",
            prompt_tokens, request.stop.max_tokens, blocks, limits.block_size, limits.blocks_total),
        "max_tokens");
  }
  return Status();
}

enum class Keys : uint8_t { kNone, kGiven, kOwn };

PreparedRequest Prepare(std::shared_ptr<const Request> request, int32_t prompt_tokens, std::vector<Hash128> keys,
                        Keys kind, const IntakeLimits& limits) {
  PreparedRequest p;
  const StopConditions& stop = request->stop;
  p.prompt_tokens = prompt_tokens;
  p.max_tokens = static_cast<int32_t>(stop.max_tokens);
  p.adapter = AdapterIndex(*request, limits) + 1;
  p.root_key = RootKeyOf(*request, limits);
  p.service_class = FindServiceClass(limits.classes, request->slo_class);
  p.passes_queue = (limits.passes_queue >> p.service_class & 1) != 0;
  p.has_keys = kind != Keys::kNone;
  p.own_keys = kind == Keys::kOwn;
  // A grammar's forced tokens follow from the last token.
  p.tokens_on_host = limits.forced_tokens && request->grammar != nullptr;
  if (!request->client.empty()) {
    p.client = std::max<uint64_t>(1, SipHash128(limits.secret, request->client.data(), request->client.size()).low);
  }
  p.stop_ids = stop.stop_token_ids;
  if (!stop.ignore_eos) p.stop_ids.insert(p.stop_ids.end(), limits.model_stop_ids.begin(), limits.model_stop_ids.end());
  std::sort(p.stop_ids.begin(), p.stop_ids.end());
  p.stop_ids.erase(std::unique(p.stop_ids.begin(), p.stop_ids.end()), p.stop_ids.end());
  p.choices.resize(static_cast<size_t>(request->n));
  const auto longest = static_cast<size_t>(prompt_tokens + p.max_tokens);
  for (SequenceBuffers& choice : p.choices) {
    if (request->prompt != nullptr) choice.output.reserve(static_cast<size_t>(p.max_tokens));
    if (kind == Keys::kGiven) {
      choice.keys.reserve(longest / static_cast<size_t>(limits.block_size) + 1);
      choice.keys.assign(keys.begin(), keys.end());
    }
    if (!stop.stop.empty()) choice.stop.emplace(&stop.stop);
  }
  p.request = std::move(request);
  return p;
}

}  // namespace

Result<PreparedRequest> PrepareRequest(std::shared_ptr<const Request> request, const IntakeLimits& limits) {
  const auto& prompt = request->prompt;
  TACTUS_RETURN_IF_ERROR(CheckFits(*request, prompt == nullptr ? 0 : static_cast<int64_t>(prompt->size()), limits));
  // With prompt_logprobs the whole prompt is computed, and nothing shared, because rows of a cached prefix have no
  // logits.
  const bool has_keys = limits.prefix_caching && !request->prompt_logprobs;
  std::vector<Hash128> keys;
  if (has_keys) {
    keys.reserve(prompt->size() / static_cast<size_t>(limits.block_size));
    ExtendBlockKeys(limits.secret, RootKeyOf(*request, limits), *prompt, limits.block_size, &keys);
  }
  const auto length = static_cast<int32_t>(prompt->size());
  return Prepare(std::move(request), length, std::move(keys), has_keys ? Keys::kGiven : Keys::kNone, limits);
}

Result<PreparedRequest> PrepareWithoutTokens(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                             std::vector<Hash128> prompt_keys, const IntakeLimits& limits) {
  TACTUS_RETURN_IF_ERROR(CheckFits(*request, prompt_tokens, limits));
  const auto full_blocks = static_cast<size_t>(prompt_tokens / limits.block_size);
  if (prompt_keys.size() > full_blocks) {
    return InvalidArgument(fmt::format("{} block keys for a prompt of {} tokens, which fills {} blocks of {}",
                                       prompt_keys.size(), prompt_tokens, full_blocks, limits.block_size));
  }
  // Keys of generated text continue the prompt's chain, so all keys of the prompt are needed.
  const bool has_keys = limits.prefix_caching && !request->prompt_logprobs && prompt_keys.size() == full_blocks;
  const Keys kind = has_keys ? Keys::kGiven : Keys::kNone;
  return Prepare(std::move(request), prompt_tokens, std::move(prompt_keys), kind, limits);
}

Result<PreparedRequest> PrepareWithOwnKeys(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                           const IntakeLimits& limits) {
  TACTUS_CHECK(request->n == 1);
  TACTUS_RETURN_IF_ERROR(CheckFits(*request, prompt_tokens, limits));
  const bool has_keys = limits.prefix_caching && !request->prompt_logprobs;
  return Prepare(std::move(request), prompt_tokens, {}, has_keys ? Keys::kOwn : Keys::kNone, limits);
}

Status AddImported(ImportedSequence imported, const IntakeLimits& limits, PreparedRequest* prepared) {
  SequenceSnapshot& snapshot = imported.snapshot;
  const int32_t known = prepared->prompt_tokens + snapshot.generated;
  if (prepared->choices.size() != 1) {
    return InvalidArgument(
        fmt::format("a request with {} choices does not move; only those with one do", prepared->choices.size()));
  }
  if (snapshot.generated < 0 || snapshot.generated >= prepared->max_tokens || snapshot.computed_tokens < 0 ||
      snapshot.computed_tokens >= known) {
    return InvalidArgument(
        fmt::format("a sequence with {} prompt tokens, {} of at most {} generated and {} computed cannot go on",
                    prepared->prompt_tokens, snapshot.generated, prepared->max_tokens, snapshot.computed_tokens));
  }
  const auto& prompt = prepared->request->prompt;
  if (prompt != nullptr && static_cast<int32_t>(snapshot.output.size()) != snapshot.generated) {
    return InvalidArgument(
        fmt::format("{} tokens were generated and {} token ids received", snapshot.generated, snapshot.output.size()));
  }
  if (prompt != nullptr && prepared->has_keys) {
    std::vector<TokenId> all(*prompt);
    all.insert(all.end(), snapshot.output.begin(), snapshot.output.end());
    std::vector<Hash128> keys = prepared->choices[0].keys;
    const auto of_prompt = static_cast<std::ptrdiff_t>(keys.size());
    ExtendBlockKeys(limits.secret, prepared->root_key, all, limits.block_size, &keys);
    imported.generated_keys.assign(keys.begin() + of_prompt, keys.end());
  }
  prepared->imported = std::make_shared<const ImportedSequence>(std::move(imported));
  prepared->arrival_ns = prepared->imported->snapshot.arrival_ns;
  return Status();
}

Intake::Intake(int32_t max_queue, int32_t capacity) : max_queue_(max_queue), capacity_(capacity) {
  requests_.reserve(256);
  cancels_.reserve(256);
}

Result<RequestHandle> Intake::Submit(PreparedRequest request, TimeNs now_ns) {
  const auto n = static_cast<int32_t>(request.choices.size());
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_.ok()) return closed_;
  const int32_t queued = queued_.load(std::memory_order_relaxed);
  const int32_t live = live_.load(std::memory_order_relaxed);
  if (request.passes_queue && live + n > capacity_) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the engine is full: it holds {} sequences of at most {}; try again later", live, capacity_));
  }
  if (!request.passes_queue && (queued + n > max_queue_ || live + n > capacity_)) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the queue is full: {} sequences wait, --max-queue is {}; try again later", queued, max_queue_));
  }
  request.handle = next_handle_++;
  if (request.arrival_ns < 0) request.arrival_ns = now_ns;
  const RequestHandle handle = request.handle;
  requests_.push_back(std::move(request));  // before the counts, because it may throw
  queued_.fetch_add(n, std::memory_order_relaxed);
  live_.fetch_add(n, std::memory_order_relaxed);
  live_requests_.fetch_add(1, std::memory_order_acq_rel);
  has_input_.store(true, std::memory_order_release);
  return handle;
}

void Intake::Cancel(RequestHandle handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  cancels_.push_back(handle);
  has_input_.store(true, std::memory_order_release);
}

void Intake::Transfer(TransferCommand command) {
  std::lock_guard<std::mutex> lock(mutex_);
  transfers_.push_back(std::move(command));
  has_input_.store(true, std::memory_order_release);
}

Status Intake::WaitForRoom(int32_t sequences, DurationNs timeout_ns) {
  const int32_t wanted = std::min({sequences, max_queue_, capacity_});
  std::unique_lock<std::mutex> lock(mutex_);
  waiters_.fetch_add(1);
  const auto ready = [&] { return !closed_.ok() || HasRoom(wanted); };
  const bool came = room_.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_ns, kLongestWaitNs)), ready);
  waiters_.fetch_sub(1);
  if (!closed_.ok()) return closed_;
  if (came) return Status();
  return Status(StatusCode::kDeadlineExceeded,
                fmt::format("no room for {} sequences came within {} ms: {} wait of at most {} (--max-queue)", wanted,
                            timeout_ns / kMillisecond, queued_.load(), max_queue_));
}

void Intake::WakeWaiters() {
  // With the mutex held no thread is between its check and its wait.
  std::lock_guard<std::mutex> lock(mutex_);
  room_.notify_all();
}

void Intake::Close(Status why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_.ok()) closed_ = std::move(why);
  room_.notify_all();
}

void Intake::Drain(std::vector<PreparedRequest>* requests, std::vector<RequestHandle>* cancels,
                   std::vector<TransferCommand>* transfers) {
  requests->clear();
  cancels->clear();
  transfers->clear();
  std::lock_guard<std::mutex> lock(mutex_);
  requests->swap(requests_);
  cancels->swap(cancels_);
  transfers->swap(transfers_);
  has_input_.store(false, std::memory_order_release);
}

}  // namespace tactus::core
