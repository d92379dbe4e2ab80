#include "api/chat/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "tactus/version.h"

namespace tactus::api {

std::string Fingerprint(const ModelInfo& model) {
  const std::string parts = fmt::format("{}\n{}\n{}\n{}", BuildInfo(), model.name, model.weight_format, model.kernels);
  const Hash128 digest = SipHash128(Hash128{1, 1}, parts.data(), parts.size());
  return fmt::format("tactus-{}-{:08x}", Version(), digest.low & 0xffffffffu);
}

namespace {

bool EndsBadly(FinishReason finish) {
  return finish == FinishReason::kError || finish == FinishReason::kCancelled;
}

// The delta for an answer that is only its echoed prompt.
TokenDelta WithoutTokens(const TokenDelta& delta) {
  TokenDelta out;
  out.choice = delta.choice;
  out.finish = delta.finish == FinishReason::kStop ? FinishReason::kLength : delta.finish;
  out.error = delta.error;
  return out;
}

}  // namespace

namespace {

// The longest marker of calls or reasoning. Text further than this from the end is classified for good.
constexpr size_t kUnsureBytes = 256;

bool IsReasoning(const AnswerText& text, size_t at) {
  const std::vector<size_t>& turns = text.reasoning_turns();
  return at < text.bytes() && (std::upper_bound(turns.begin(), turns.end(), at) - turns.begin()) % 2 == 1;
}

}  // namespace

void TokenCount::Add(size_t bytes) {
  if (bytes == 0) return;
  begins_.push_back(end_);
  end_ += bytes;
}

void TokenCount::Settle(const AnswerText& text) {
  constexpr size_t kMany = 1024;
  if (begins_.size() < kMany) return;
  const auto sure =
      std::find_if(begins_.begin(), begins_.end(), [&](size_t at) { return at + kUnsureBytes >= text.bytes(); });
  settled_ += std::count_if(begins_.begin(), sure, [&](size_t at) { return IsReasoning(text, at); });
  begins_.erase(begins_.begin(), sure);
}

int64_t TokenCount::Reasoning(const AnswerText& text) const {
  return settled_ + std::count_if(begins_.begin(), begins_.end(), [&](size_t at) { return IsReasoning(text, at); });
}

bool Answer::Tells(const TokenDelta& delta) {
  if (EndsBadly(delta.finish)) return false;
  return !delta.text.empty() || !delta.logprobs.empty() || delta.finish != FinishReason::kNone;
}

std::unique_ptr<AnswerWriter> CompletionWriterOf(const Engine& engine, const AnswerShape& shape,
                                                 const AnswerIdentity& identity, ChunkFrame frame) {
  return std::make_unique<CompletionWriter>(engine,
                                            CompletionForm{.chat = shape.chat,
                                                           .logprobs = shape.logprobs,
                                                           .include_usage = shape.include_usage,
                                                           .continuous_usage = shape.continuous_usage,
                                                           .frame = std::move(frame)},
                                            (shape.chat ? "chatcmpl-" : "cmpl-") + identity.request_id,
                                            identity.created, identity.fingerprint);
}

Answer::Answer(const Engine& engine, AnswerShape shape, AnswerIdentity identity, ChunkFrame frame)
    : Answer(shape, CompletionWriterOf(engine, shape, identity, std::move(frame))) {
  if (shape_.engine == nullptr) shape_.engine = &engine;
}

Answer::Answer(AnswerShape shape, std::unique_ptr<AnswerWriter> writer)
    : shape_(std::move(shape)),
      writer_(std::move(writer)),
      prompts_(shape_.prompts.size()),
      choices_(shape_.prompts.size() * static_cast<size_t>(shape_.choices_per_prompt)) {
  if (shape_.reading) {
    for (size_t i = 0; i < choices_.size(); ++i)
      choices_[i].reader = std::make_unique<AnswerText>(*shape_.reading, fmt::format("{}/{}", writer_->id(), i));
  }
  if (!shape_.prompt_logprobs) return;
  // The first token has no probability, so its row is NaN; the engine reports the others.
  for (size_t i = 0; i < prompts_.size(); ++i) {
    prompts_[i].logprobs.push_back(
        {TokenLogprob{shape_.prompts[i].tokens->front(), std::numeric_limits<float>::quiet_NaN()}});
  }
}

Status Answer::OnDelta(size_t prompt, const TokenDelta& given, std::string* chunks) {
  parts_.clear();
  if (!status_.ok()) return status_;
  begun_ = true;
  TokenDelta silent;
  if (shape_.prompt_only) silent = WithoutTokens(given);
  const TokenDelta& delta = shape_.prompt_only ? silent : given;
  prompts_[prompt].usage.completion_tokens += static_cast<int64_t>(delta.tokens.size());
  const size_t index = prompt * static_cast<size_t>(shape_.choices_per_prompt) + static_cast<size_t>(delta.choice);
  const bool called = Read(&choices_[index], delta);
  if (!shape_.stream) {
    ChoiceText& text = choices_[index].text;
    for (const AnswerPart& part : parts_) AppendPart(part, &text.parts);
    text.logprobs.insert(text.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    text.finish = delta.finish;
    text.stop_string = delta.stop_string;
  }
  if (EndsBadly(delta.finish)) {
    status_ = delta.error.ok() ? Internal("generation ended without a reason") : delta.error;
    // The only invalid argument that appears during generation is the output rule.
    if (status_.code() == StatusCode::kInvalidArgument && status_.param().empty() && !shape_.rule_field.empty())
      status_ = InvalidArgument(shape_.rule_field + ": " + status_.message(), shape_.rule_field);
    return status_;
  }
  if (shape_.stream && Tells(delta)) AppendChunks(prompt, index, delta, called, chunks);
  return Status();
}

bool Answer::Read(ChoiceState* choice, const TokenDelta& delta) {
  if (choice->reader == nullptr) {
    parts_.resize(delta.text.empty() ? 0 : 1);
    if (!parts_.empty()) parts_[0].text = delta.text;
    return false;
  }
  parts_.clear();
  choice->reader->Append(delta.text, &parts_);
  if (shape_.engine != nullptr) {
    for (const TokenId token : delta.tokens) choice->tokens.Add(shape_.engine->TokenBytes(token).size());
    choice->tokens.Settle(*choice->reader);
  }
  if (delta.finish != FinishReason::kNone && delta.finish != FinishReason::kMigrated) choice->reader->Finish(&parts_);
  return choice->reader->called() && (delta.stop_string.empty() || !choice->reader->broken());
}

void Answer::AppendChunks(size_t prompt, size_t index, const TokenDelta& delta, bool called, std::string* chunks) {
  ChoiceState& choice = choices_[index];
  const auto shown_index = static_cast<int32_t>(index);
  const AnswerUsage usage = UsageSoFar(prompt);
  if (!choice.begun) {
    choice.begun = true;
    const EchoedPrompt echo{shape_.prompts[prompt].echo, prompts_[prompt].logprobs};
    writer_->AppendBegin(chunks, shown_index, shape_.echo ? &echo : nullptr, usage);
  }
  // Withheld text is sent later, once it is classified.
  const bool silent = parts_.empty() && delta.logprobs.empty() && delta.finish == FinishReason::kNone;
  if (silent) return;
  writer_->AppendDelta(chunks, shown_index, {parts_, delta.logprobs, delta.finish, called, delta.stop_string}, usage);
}

void Answer::OnPromptLogprobs(size_t prompt, const std::vector<std::vector<TokenLogprob>>& rows) {
  if (!shape_.prompt_logprobs) return;
  // Rows arrive as the prompt is computed, from its second token on.
  auto& all = prompts_[prompt].logprobs;
  const size_t room = shape_.prompts[prompt].tokens->size() - all.size();
  all.insert(all.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(std::min(room, rows.size())));
}

void Answer::OnDone(size_t prompt, const Usage& usage, std::string* chunks) {
  PromptState& state = prompts_[prompt];
  if (state.done) return;
  state.done = true;
  state.usage = usage;
  if (shape_.prompt_only) state.usage.completion_tokens = 0;
  ++prompts_done_;
  if (!done() || !status_.ok() || !shape_.stream) return;
  writer_->AppendLast(chunks, this->usage(), schedule_);
}

AnswerUsage Answer::UsageSoFar(size_t prompt) const {
  AnswerUsage usage;
  usage.prompt_tokens = static_cast<int64_t>(shape_.prompts[prompt].tokens->size());
  usage.completion_tokens = prompts_[prompt].usage.completion_tokens;
  if (!shape_.continuous_usage) return usage;  // only continuous usage needs the reasoning count of a chunk
  const auto per_prompt = static_cast<size_t>(shape_.choices_per_prompt);
  for (size_t i = prompt * per_prompt; i < (prompt + 1) * per_prompt; ++i) {
    if (choices_[i].reader != nullptr) usage.reasoning_tokens += choices_[i].tokens.Reasoning(*choices_[i].reader);
  }
  return usage;
}

AnswerUsage Answer::usage() const {
  AnswerUsage total;
  for (const ChoiceState& choice : choices_) {
    if (choice.reader != nullptr) total.reasoning_tokens += choice.tokens.Reasoning(*choice.reader);
  }
  for (const PromptState& prompt : prompts_) {
    total.prompt_tokens += prompt.usage.prompt_tokens;
    total.cached_tokens += prompt.usage.cached_tokens;
    total.completion_tokens += prompt.usage.completion_tokens;
  }
  return total;
}

std::string Answer::Complete() && {
  std::vector<ChoiceText> texts;
  for (size_t i = 0; i < choices_.size(); ++i) {
    const size_t prompt = i / static_cast<size_t>(shape_.choices_per_prompt);
    const auto& echoed = prompts_[prompt].logprobs;
    ChoiceText& text = texts.emplace_back(std::move(choices_[i].text));
    if (const std::string& echo = shape_.prompts[prompt].echo; !echo.empty()) {
      if (text.parts.empty()) text.parts.emplace_back();
      text.parts[0].text.insert(0, echo);
    }
    text.logprobs.insert(text.logprobs.begin(), echoed.begin(), echoed.end());
  }
  return writer_->Whole(texts, usage(), schedule_);
}

}  // namespace tactus::api
