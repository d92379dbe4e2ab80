#include "engine/start/start_drafts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "core/draft/draft_model.h"
#include "core/draft/draft_sources.h"
#include "core/draft/prompt_lookup.h"
#include "engine/start/check_model.h"

namespace tactus::engine {
namespace {

constexpr int64_t kStepTokens = 512;  // of a prompt computed in one step
// Divides the KV memory that the draft model alone would get: only sequences that currently guess need KV in it.
constexpr int64_t kKvShare = 4;

Status CheckVocabulary(const language::Tokenizer& served, const language::Tokenizer& draft, const std::string& name) {
  const int32_t tokens = std::min(served.vocab_size(), draft.vocab_size());
  for (TokenId t = 0; t < tokens; ++t) {
    if (served.TokenText(t) == draft.TokenText(t)) continue;
    return InvalidArgument(
        fmt::format("--draft-model {}: its token {} is '{}', but '{}' in the served model; a draft model needs "
                    "the same vocabulary, as models of one family have",
                    name, t, Printable(draft.TokenText(t)), Printable(served.TokenText(t))),
        "draft-model");
  }
  if (served.vocab_size() == draft.vocab_size()) return Status();
  return InvalidArgument(
      fmt::format("--draft-model {}: its vocabulary has {} tokens, that of the served model {}; a draft model "
                  "needs the same vocabulary, as models of one family have",
                  name, draft.vocab_size(), served.vocab_size()),
      "draft-model");
}

// Resets the options that describe only the served model.
EngineOptions OptionsOf(const EngineOptions& options) {
  EngineOptions o = options;
  o.model = options.draft_model;
  o.chat_template.clear();
  o.quantization = "none";
  o.dtype = "auto";
  o.activation_dtype = "auto";
  return o;
}

Status OfDraftModel(const Status& status) {
  return Status(status.code(), "--draft-model: " + status.message(), "draft-model");
}

}  // namespace

Status CheckDraftFlags(const EngineOptions& options) {
  if (options.speculation != "draft") {
    if (options.draft_model.empty()) return Status();
    return InvalidArgument(fmt::format("--draft-model needs --speculation draft, which is {}; set that too, or leave "
                                       "the model out",
                                       options.speculation),
                           "draft-model");
  }
  if (options.draft_model.empty()) {
    return InvalidArgument(
        "--speculation draft needs --draft-model: a smaller model of the same vocabulary; --speculation ngram needs "
        "none",
        "draft-model");
  }
  return Status();
}

Result<DraftPlan> PlanDrafts(const EngineOptions& options, const language::Tokenizer& served, int32_t max_draft_tokens,
                             Clock& clock) {
  DraftPlan plan;
  if (options.speculation != "none" && max_draft_tokens == 0) {
    return InvalidArgument(
        fmt::format("--speculation {}: this model's executor cannot verify guesses; use none", options.speculation),
        "speculation");
  }
  TACTUS_RETURN_IF_ERROR(CheckDraftFlags(options));
  if (options.draft_model.empty()) return plan;
  const EngineOptions o = OptionsOf(options);
  const auto path = compute::ResolveModel(o.model);
  if (!path.ok()) return OfDraftModel(path.status());
  const auto description = compute::DescribeModel(*path);
  if (!description.ok()) return OfDraftModel(description.status());
  const auto text = CheckModel(o, *description);
  if (!text.ok()) return OfDraftModel(text.status());
  plan.name = Printable(o.model);
  TACTUS_RETURN_IF_ERROR(CheckVocabulary(served, *text->tokenizer, plan.name));
  auto backend = compute::MakeBackend(o, *description, clock);
  if (!backend.ok()) return OfDraftModel(backend.status());
  plan.backend = std::move(backend).value();

  MemoryDemand demand;
  demand.max_num_seqs = o.max_num_seqs;
  demand.max_step_tokens = std::max(kStepTokens, o.max_num_seqs);
  demand.block_size = static_cast<int32_t>(o.block_size);
  auto whole = plan.backend->PlanMemory(demand);
  if (!whole.ok()) return OfDraftModel(whole.status());
  demand.kv_bytes = std::max<int64_t>(1, whole->kv_bytes / kKvShare);
  auto granted = plan.backend->PlanMemory(demand);
  if (!granted.ok()) return OfDraftModel(granted.status());
  plan.memory = std::move(granted).value();
  plan.size.num_blocks = plan.memory.num_blocks;
  plan.size.block_size = demand.block_size;
  plan.size.max_model_len = plan.memory.max_model_len;
  plan.size.max_step_tokens = demand.max_step_tokens;
  plan.size.max_step_items = static_cast<int32_t>(o.max_num_seqs);
  plan.vocab_size = description->config.vocab_size;
  return plan;
}

Result<std::unique_ptr<core::DraftSource>> MakeDrafts(DraftPlan plan, const EngineOptions& options,
                                                      const DraftLimits& limits, const Backend::Say& say) {
  const auto most = static_cast<int32_t>(options.draft_tokens);
  std::unique_ptr<core::DraftSource> guesses;
  if (options.speculation == "ngram") {
    guesses = std::make_unique<core::PromptLookup>(limits.slots, most, limits.max_model_len);
  } else if (plan.backend != nullptr) {
    TACTUS_ASSIGN_OR_RETURN(const std::string format, plan.backend->LoadWeights(say));
    plan.size.max_slots = limits.slots;
    TACTUS_ASSIGN_OR_RETURN(auto executor, plan.backend->CreateExecutor(plan.size));
    say(fmt::format("draft model {}: weights {}; KV of {} blocks of {} tokens, context {}; at most {} guesses",
                    plan.name, format, plan.size.num_blocks, plan.size.block_size, plan.size.max_model_len, most));
    const auto vocab_size = static_cast<int32_t>(std::min(plan.vocab_size, limits.vocab_size));
    guesses =
        std::make_unique<core::DraftModel>(std::move(plan.backend), std::move(executor), plan.size, vocab_size, most);
  }
  return std::unique_ptr<core::DraftSource>(std::make_unique<core::DraftSources>(limits.slots, std::move(guesses)));
}

}  // namespace tactus::engine
