// What an engine guesses with (--speculation): planned before anything is loaded, then made. A draft model is checked
// against the model that is served, and its memory planned beside that model's.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "core/interfaces/draft_source.h"
#include "engine/model_text.h"
#include "tactus/options.h"

namespace tactus::engine {

struct DraftPlan {
  std::unique_ptr<Backend> backend;  // of the draft model; null: there is none
  MemoryGrant memory;
  ExecutorSize size;  // but for max_slots
  int64_t vocab_size = 0;
  std::string name;
};

// Of --speculation and --draft-model, one without the other; kInvalidArgument names the flag.
Status CheckDraftFlags(const EngineOptions& options);

// kInvalidArgument with the flag: speculation that the executor cannot verify (`max_draft_tokens` 0), a draft model
// without --speculation draft or the other way round, one of another vocabulary (the first token that differs, or the
// sizes) or that no memory is left for.
Result<DraftPlan> PlanDrafts(const EngineOptions& options, const language::Tokenizer& served, int32_t max_draft_tokens,
                             Clock& clock);

struct DraftLimits {
  int32_t slots = 0;  // live sequences
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;  // of the model that is served
};
// Forced tokens, and the guesses that were asked for; a draft model is loaded.
Result<std::unique_ptr<core::DraftSource>> MakeDrafts(DraftPlan plan, const EngineOptions& options,
                                                      const DraftLimits& limits, const Backend::Say& say);

}  // namespace tactus::engine
