// The step contract between the engine and an executor: the plan and the result of one forward pass. Plain data, shared
// by every executor (CPU, CUDA, fake, simulated) and by the step trace. See ARCHITECTURE.md.
//
// Lifetime: the engine owns a ring of plans; a plan stays valid and unchanged from Submit until the result of its step
// has been polled. Buffers keep their capacity, so that the step loop does not allocate while no
// sequence starts.
#pragma once

#include <span>
#include <vector>

#include "base/step_time_model.h"
#include "base/units.h"
#include "tactus/request.h"

namespace tactus {

enum class InputSource : uint8_t {
  kHost,     // token ids are in StepPlan::tokens
  kChained,  // count is 1; the input token is what this slot's previous item samples (not yet seen by the host)
};

// One sequence's share of a step: a chunk has many tokens, a decode 1, a speculative decode 1 + draft_tokens.
// Tokens at positions [first_position, first_position + count) are computed; their K and V are written to the blocks
// that the slot's block table names. The last `logit_rows` of them get logits.
//
// Drafts. The last `draft_tokens` inputs of a sampling item are drafted tokens. The executor samples at the row before
// the first draft, and continues with the next row while the sampled token equals the draft there. So it returns 1 to
// draft_tokens + 1 tokens, the same that steps without drafts would have sampled, and accepts the positions whose input
// was right. Other positions are rolled back: their K and V are garbage that later items overwrite before any read.
struct StepItem {
  SlotId slot = kNoSlot;
  int32_t first_position = 0;
  int32_t count = 0;       // tokens, including drafts
  int32_t logit_rows = 0;  // 0: none (a chunk that is not the last), 1 + draft_tokens: sample, count: prompt logprobs
  bool sample = false;     // sample from the last row; with drafts from the last 1 + draft_tokens, as above
  InputSource input = InputSource::kHost;
  int32_t token_offset = 0;  // kHost: the count ids start at StepPlan::tokens[token_offset]
  int32_t draft_tokens = 0;  // with kHost and `sample` only, fewer than count, at most ExecutorTraits::max_draft_tokens
};

// Copies the first `tokens` positions of block `from` into block `to`, every layer, K and V, before the items run.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  int32_t tokens = 0;
};

// Copies `tokens` positions of a block between the KV memory and the host's swap arena (with separate block ids), every
// layer, K and V. Order within a step: swap_outs, copies, swap_ins, items; so a block swapped out may be written again
// in the same step, and so may the source of a copy that is swapped out later in the same plan.
struct SwapCopy {
  BlockId block = kNoBlock;
  BlockId host_block = kNoBlock;
  int32_t tokens = 0;
};

// Entries [first_index, first_index + count) of a slot's block table become StepPlan::table_blocks[offset ...].
// Applied in order, before copies and items. Tables live in the executor, so a step carries only what changed.
struct TableUpdate {
  SlotId slot = kNoSlot;
  int32_t first_index = 0;
  int32_t count = 0;
  int32_t offset = 0;
};

// How tokens of a sequence are sampled. Plain data, except the compiled grammar: a plan for another process would carry
// the rule instead.
struct SamplingSpec {
  SamplingParams params{.temperature = 0.0f};  // greedy by default
  bool prompt_logprobs = false;                // every prompt row gets logits and logprobs
  int32_t max_tokens = 0;                      // of output
  std::vector<TokenId> prompt;                 // if penalties or prompt_logprobs need it; else empty
  std::vector<TokenId> output;  // generated before a preemption, if penalties or the grammar need it; else empty
  std::shared_ptr<const TokenGrammar> grammar;  // allows each token; null: any token
  int32_t unended_tokens = 0;                   // next tokens that must not be in `ends`, unless the grammar forces one
  std::vector<TokenId> ends;                    // sorted; empty if unended_tokens is 0
};

// The sampling of one choice of a request that has generated `output` so far. `model_ends`: the model's stop ids, which
// min_tokens delays like the request's own.
SamplingSpec SamplingOf(const Request& request, std::span<const TokenId> output,
                        std::span<const TokenId> model_ends = {});

// A sequence that (re)starts in this step: resets all state of the executor for the slot.
struct SequenceStart {
  SlotId slot = kNoSlot;
  int32_t choice = 0;
  RequestHandle request = 0;  // for executors with further data of the request (simulation)
  int32_t adapter = 0;        // 0: only the model, k: loaded adapter k - 1
  SamplingSpec sampling;
};

struct StepPlan {
  StepId step = -1;
  TimeNs planned_ns = 0;
  std::vector<SequenceStart> starts;
  std::vector<TableUpdate> table_updates;
  std::vector<BlockId> table_blocks;
  std::vector<SwapCopy> swap_outs;
  std::vector<SwapCopy> swap_ins;
  std::vector<BlockCopy> copies;
  std::vector<StepItem> items;
  std::vector<SlotId> preempts;  // for the trace; not used by the executor
  std::vector<SlotId>
      forgets;  // slots whose grammar state is freed, before `starts`; other slots keep hardly any memory
  std::vector<TokenId> tokens;  // host input ids of all items, in item order; empty in simulations
  int64_t num_tokens = 0;       // sum of counts
  int64_t budget_tokens = 0;    // size limit set by the budget; one whole prompt may exceed it (StepBudget)
  int32_t num_decodes = 0;      // generating items with one token besides their drafts
  int64_t draft_tokens = 0;     // sum of the items'
  // For step-time models: items not in prompt_items are decodes. Maintained by PlanBuilder, so that readers need not
  // scan the items.
  std::vector<int32_t> prompt_items;  // indices of items that compute (or recompute) a prompt
  int64_t decode_context_tokens = 0;  // KV tokens that the decodes read, summed, each one's own token included
  std::vector<PrefixShape> prefixes;  // shared by decodes, if the device reads them once for all
  int64_t logit_rows = 0;             // sum of the items'
  int64_t padded_tokens = 0;          // padding (--pad)
  double least_chance = 0;  // minimum probability of a draft token; a less likely one costs more than it saves
  DurationNs longest_preemption_ns = 0;  // see StepRecord

  void Clear() {
    step = -1;
    planned_ns = 0;
    num_tokens = 0;
    budget_tokens = 0;
    num_decodes = 0;
    draft_tokens = 0;
    least_chance = 0;
    starts.clear();
    table_updates.clear();
    table_blocks.clear();
    copies.clear();
    swap_outs.clear();
    swap_ins.clear();
    items.clear();
    preempts.clear();
    forgets.clear();
    tokens.clear();
    prompt_items.clear();
    decode_context_tokens = 0;
    prefixes.clear();
    logit_rows = 0;
    padded_tokens = 0;
    longest_preemption_ns = 0;
  }

  int64_t prefill_tokens() const { return num_tokens - num_decodes - draft_tokens; }
};

enum class ItemStatus : uint8_t {
  kOk,
  kBadLogits,   // not finite: ends the request with an error, the step continues
  kFailed,      // this item could not run
  kBadGrammar,  // its grammar allows no further token: as kBadLogits
};

struct ItemResult {
  ItemStatus status = ItemStatus::kOk;
  int32_t accepted = 0;      // accepted leading positions; fewer than StepItem::count after a rejected draft
  int32_t token_offset = 0;  // new tokens of this item: StepResult::tokens[token_offset, + num_tokens)
  int32_t num_tokens = 0;    // 0 if nothing was sampled; with drafts 1 + accepted drafts
};

struct StepResult {
  StepId step = -1;
  Status status;                  // not ok: the whole step failed, ignore the items
  bool device_failed = false;     // then no later step can run either
  std::vector<ItemResult> items;  // one per plan item, same order
  std::vector<TokenId> tokens;
  // Short form for executors without tokens: every item ran as planned (kOk, accepted = count except for drafts, one
  // token if it samples); `items` and `tokens` stay empty. `stops`: ascending indices of items whose last token is the
  // end of the text. `accepted_drafts`: one entry for each item with drafts, in plan order.
  bool as_planned = false;
  std::vector<int32_t> stops;
  std::vector<int32_t> accepted_drafts;
  // Logprobs of item i's tokens, only for requests with logprobs: the chosen token first, then the best. Empty
  // otherwise.
  struct TokenLogprobs {
    int32_t item = 0;
    std::vector<std::vector<TokenLogprob>> per_token;
  };
  std::vector<TokenLogprobs> logprobs;
  // With Request::prompt_logprobs: logprob of each prompt token given those before it, for rows of this chunk:
  // entry r belongs to the token at position first_position + r + 1 (the last row of the prompt has none).
  std::vector<TokenLogprobs> prompt_logprobs;
  TimeNs start_ns = 0;  // on the executor's clock
  TimeNs end_ns = 0;

  void Clear() {
    step = -1;
    status = Status();
    device_failed = false;
    items.clear();
    tokens.clear();
    logprobs.clear();
    prompt_logprobs.clear();
    as_planned = false;
    stops.clear();
    accepted_drafts.clear();
    start_ns = end_ns = 0;
  }
};

}  // namespace tactus
