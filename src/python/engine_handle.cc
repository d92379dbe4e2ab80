#include "python/engine_handle.h"

#include <pthread.h>
#include <unistd.h>

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "api/request_parser.h"
#include "python/calls.h"
#include "results/obs/run_result.h"

namespace tactus::python {
namespace {

EngineOptions OptionsOf(const OptionTexts& texts) {
  EngineOptions options;
  // No objective applies: no step times are needed.
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

Result<api::ParsedRequest> Parse(const std::string& body, bool chat, const api::RequestLimits& limits, StopToken stop) {
  return chat ? api::ParseChatRequest(body, limits, stop) : api::ParseCompletionRequest(body, limits, stop);
}

void CheckTokens(const std::vector<TokenId>& tokens, const char* name, int64_t vocab_size) {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    throw StatusError(
        InvalidArgument(fmt::format("{}: {} is not a token id from 0 to {}", name, token, vocab_size - 1), name));
  }
}

// The engines of this process that are open or being created.
struct OpenEngines {
  std::mutex mutex;
  std::set<EngineHandle*> handles;
};

OpenEngines& AllEngines() {
  // Never destroyed: threads that remain at the end of the process may still use it. A forked process starts with an
  // empty one.
  static OpenEngines* all = [] {
    pthread_atfork(nullptr, nullptr, [] { new (&AllEngines()) OpenEngines; });
    return new OpenEngines;
  }();
  return *all;
}

}  // namespace

void CloseEngines() {
  std::lock_guard lock(AllEngines().mutex);
  for (EngineHandle* handle : AllEngines().handles) {
    try {
      handle->Close();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the interpreter ends, and no caller is left
    }
  }
}

size_t AskedRequest::bytes() const {
  size_t bytes = body.size();
  if (const auto* text = std::get_if<std::string>(&prompt)) bytes += text->size();
  return bytes;
}

EngineHandle::EngineHandle(const OptionTexts& texts) : pid_(getpid()) {
  const EngineOptions options = OptionsOf(texts);
  engine_ = Take(Engine::Create(options, [this](std::string_view line) { lines_.emplace_back(line); }));
  block_size_ = options.block_size;
  limits_ = api::LimitsOf(*engine_, options.default_max_tokens);
  {
    std::lock_guard lock(AllEngines().mutex);
    AllEngines().handles.insert(this);
  }
  if (CallsEnd()) Close();  // CloseEngines may have run before
}

EngineHandle::~EngineHandle() {
  // The engine's threads do not exist in this process: destroying it would wait for them forever.
  if (forked()) {
    (void)engine_.release();
    return;
  }
  std::lock_guard lock(AllEngines().mutex);
  AllEngines().handles.erase(this);
}

bool EngineHandle::forked() const {
  return getpid() != pid_;
}

void EngineHandle::CheckProcess() const {
  if (!forked()) return;
  throw StatusError(Status(StatusCode::kUnavailable,
                           "this process was forked from the one that created the LLM and does not have its threads; "
                           "create the LLM after forking, or start processes with 'spawn'"));
}

EngineHandle::Use::Use(EngineHandle& handle) : handle_(handle) {
  handle.CheckProcess();
  lock_ = std::shared_lock(handle.open_);
  if (handle.engine_ == nullptr)
    throw StatusError(Status(StatusCode::kUnavailable, "the LLM is closed; create a new one"));
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

ReadyRequest EngineHandle::Prepare(AskedRequest asked, StopToken stop) {
  const Use engine(*this);
  api::ParsedRequest parsed = Take(Parse(asked.body, asked.chat(), limits_, stop));
  if (asked.context_long) parsed.default_max_tokens = limits_.max_model_len;
  if (auto* text = std::get_if<std::string>(&asked.prompt)) parsed.prompts = {std::move(*text)};
  if (auto* ids = std::get_if<std::vector<TokenId>>(&asked.prompt)) {
    CheckTokens(*ids, "prompt", limits_.vocab_size);
    parsed.prompts = {std::move(*ids)};
  }
  if (api::SequenceCount(parsed) != parsed.base.n)
    throw StatusError(InvalidArgument("prompt: give one prompt per request", "prompt"));
  api::Prepared prepared = Take(api::PrepareConversation(std::move(parsed), *engine, limits_, stop));
  ReadyRequest ready{std::move(prepared.requests[0]), nullptr};
  if (prepared.shape.reading || !prepared.shape.rule_field.empty())
    ready.shape = std::make_shared<const api::AnswerShape>(std::move(prepared.shape));
  return ready;
}

std::vector<TokenId> EngineHandle::Tokenize(const std::string& text, bool add_special, StopToken stop) {
  const Use engine(*this);
  std::vector<TokenId> tokens = engine->Tokenize(text, add_special, stop);
  if (stop.stopped()) throw StatusError(Status(StatusCode::kCancelled, "the call was interrupted"));
  return tokens;
}

std::string EngineHandle::Detokenize(const std::vector<TokenId>& tokens) {
  const Use engine(*this);
  CheckTokens(tokens, "token_ids", limits_.vocab_size);
  return engine->Detokenize(tokens);
}

std::string EngineHandle::TokenString(TokenId token) {
  return Use(*this)->TokenString(token);
}

std::string EngineHandle::Outcome() {
  return ToJson(Use(*this)->Outcome());
}

std::string EngineHandle::MetricsText() {
  return Use(*this)->MetricsText();
}

EngineHandle::Model EngineHandle::model() {
  const Use engine(*this);
  return {engine->model(), engine->Stats().kv_blocks_total * block_size_};
}

void EngineHandle::IfOpen(const std::function<void()>& cancel) {
  if (forked()) return;
  std::shared_lock lock(open_);
  if (engine_ != nullptr) cancel();
}

void CheckBody(const std::string& body, bool chat) {
  api::RequestLimits any;
  any.max_model_len = std::numeric_limits<int64_t>::max();
  any.vocab_size = std::numeric_limits<TokenId>::max();
  const api::ParsedRequest parsed = Take(Parse(body, chat, any, StopToken()));
  if (parsed.ignored.empty()) return;
  const std::string& first = parsed.ignored.front();
  throw StatusError(InvalidArgument(fmt::format("{}: unknown field; leave it out", first), first));
}

}  // namespace tactus::python
