// The engine's sources of drafts (--speculation): planned before anything is loaded, then created. A draft model is
// checked against the served model, and its memory is planned beside that model's.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "core/interfaces/draft_source.h"
#include "engine/start/model_text.h"
#include "tactus/options.h"

namespace tactus::engine {

struct DraftPlan {
  std::unique_ptr<Backend> backend;  // of the draft model; null: none
  MemoryGrant memory;
  ExecutorSize size;  // except max_slots
  int64_t vocab_size = 0;
  std::string name;
};

// Checks that --speculation draft and --draft-model are given together; kInvalidArgument names the flag.
Status CheckDraftFlags(const EngineOptions& options);

// kInvalidArgument with the flag: speculation that the executor cannot verify (`max_draft_tokens` 0), a draft model
// without --speculation draft or the other way round, a draft model with another vocabulary (the first token that
// differs, or the sizes) or without enough memory.
Result<DraftPlan> PlanDrafts(const EngineOptions& options, const language::Tokenizer& served, int32_t max_draft_tokens,
                             Clock& clock);

struct DraftLimits {
  int32_t slots = 0;  // live sequences
  int64_t max_model_len = 0;
  int64_t vocab_size = 0;  // of the served model
};
// Sources of forced tokens and of the guesses requested by --speculation; loads the draft model.
Result<std::unique_ptr<core::DraftSource>> MakeDrafts(DraftPlan plan, const EngineOptions& options,
                                                      const DraftLimits& limits, const Backend::Say& say);

}  // namespace tactus::engine
