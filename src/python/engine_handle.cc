#include "python/engine_handle.h"

#include <unistd.h>

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <utility>

namespace tactus::python {
namespace {

EngineOptions OptionsOf(const OptionTexts& texts) {
  EngineOptions options;
  // Nothing is promised: no step times are needed.
  options.tbt_slo.ns = 0;
  options.scheduler = "sarathi-serve";
  OptionTexts others;
  for (const auto& [name, text] : texts) {
    if (name == "model")
      options.model = text;
    else
      others.emplace_back(name, text);
  }
  SetOptions(others, &options);
  return options;
}

Result<api::ParsedRequest> Parse(const std::string& body, bool chat, const api::RequestLimits& limits) {
  return chat ? api::ParseChatRequest(body, limits) : api::ParseCompletionRequest(body, limits);
}

}  // namespace

EngineHandle::EngineHandle(const OptionTexts& texts) : pid_(getpid()) {
  const EngineOptions options = OptionsOf(texts);
  engine_ = Take(Engine::Create(options, [this](std::string_view line) { lines_.emplace_back(line); }));
  block_size_ = options.block_size;
  limits_ = api::LimitsOf(*engine_, options.default_max_tokens);
}

EngineHandle::~EngineHandle() {
  // Its threads do not exist here: ending it would wait for them for ever.
  if (forked()) (void)engine_.release();
}

bool EngineHandle::forked() const {
  return getpid() != pid_;
}

void EngineHandle::CheckProcess() const {
  if (!forked()) return;
  throw StatusError(Status(StatusCode::kUnavailable,
                           "this process was forked from the one that made the LLM, whose threads are not here; make "
                           "the LLM after forking, or start processes with 'spawn'"));
}

EngineHandle::Use::Use(EngineHandle& handle) : handle_(handle) {
  handle.CheckProcess();
  lock_ = std::shared_lock(handle.open_);
  if (handle.engine_ == nullptr)
    throw StatusError(Status(StatusCode::kUnavailable, "the LLM is closed; make a new one"));
}

void EngineHandle::Close() {
  if (forked()) return;
  std::unique_ptr<Engine> engine;
  {
    std::unique_lock lock(open_);
    engine = std::move(engine_);
  }
  if (engine != nullptr) Check(engine->Close());
}

bool EngineHandle::closed() {
  if (forked()) return true;
  std::shared_lock lock(open_);
  return engine_ == nullptr;
}

ReadyRequest EngineHandle::Prepare(const std::string& body, bool chat, bool context_long) {
  const Use engine(*this);
  api::ParsedRequest parsed = Take(Parse(body, chat, limits_));
  if (context_long) parsed.default_max_tokens = limits_.max_model_len;
  if (api::SequenceCount(parsed) != parsed.base.n) {
    throw StatusError(InvalidArgument("prompt: give one prompt per request", "prompt"));
  }
  api::Prepared prepared = Take(api::PrepareConversation(std::move(parsed), *engine, limits_));
  return {std::move(prepared.requests[0])};
}

std::string EngineHandle::Detokenize(const std::vector<TokenId>& tokens) {
  const Use engine(*this);
  for (const TokenId token : tokens) {
    if (token >= 0 && token < limits_.vocab_size) continue;
    throw StatusError(InvalidArgument(
        fmt::format("tokens: {} is no token id from 0 to {}", token, limits_.vocab_size - 1), "tokens"));
  }
  return engine->Detokenize(tokens);
}

void EngineHandle::Cancel(const std::vector<RequestHandle>& requests) {
  if (forked()) return;
  std::shared_lock lock(open_);
  if (engine_ == nullptr) return;
  for (const RequestHandle request : requests) engine_->Cancel(request);
}

void CheckBody(const std::string& body, bool chat) {
  api::RequestLimits any;
  any.max_model_len = std::numeric_limits<int64_t>::max();
  any.vocab_size = std::numeric_limits<TokenId>::max();
  Check(Parse(body, chat, any).status());
}

}  // namespace tactus::python
