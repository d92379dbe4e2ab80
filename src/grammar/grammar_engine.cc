#include "grammar/grammar_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/json_text.h"
#include "base/thread_cpu.h"
#include "base/worker_pool.h"
#include "grammar/deep_calls.h"
#include "grammar/exact_schema.h"
#include "grammar/llguidance.h"
#include "grammar/regex_text.h"
#include "grammar/rule_cache.h"
#include "grammar/rule_error.h"
#include "grammar/schema_check.h"
#include "grammar/schema_text.h"

namespace tactus::grammar {
namespace {

constexpr uint8_t kSpecialMark = 0xff;  // before a special token's name

// Of the thread that compiles: llguidance's readers of regexes and Lark recurse once per nested bracket. Address space
// only, until it is used.
constexpr size_t kStackBytes = size_t{512} << 20;

// Sets of tokens that a mask takes as a whole where a lexeme allows any of them, without a look at each: the insides of
// strings, lines and words. Chosen by bench/grammar; more sets cost more tests than they save.
constexpr const char* kSlices[] = {R"([a-z]{1,10})",
                                   R"([a-zA-Z0-9]{1,10})",
                                   R"([^"\\\x00-\x1F\x7F]{1,5})",
                                   R"([^"\\\x00-\x1F\x7F]{1,10})",
                                   R"([^"\\\x00-\x1F\x7F]{1,30})",
                                   R"([^\x00-\x1F\x7F]{1,30})",
                                   R"([^\x0A]+)",
                                   nullptr};

// On one string: the work of intersecting regexes doubles and more with each, and llguidance counts it only in between.
constexpr int kMostPatterns = 8;

// Of text that leaves no choice: the library copies and checks all of it for every mask until it has come.
constexpr size_t kMostForcedBytes = 64 << 10;
// Of it that is tokenised each time, or so many of the longest tokens.
constexpr size_t kTokenizedBytes = 2 << 10, kTokenizedTokens = 16;
// Tokens before a cut that the text behind it might have changed.
constexpr size_t kUnsureTokens = 4;

// How much forced text the library has asked this thread to tokenise since it was set to 0: its interface does not
// say how much there is.
thread_local size_t forced_bytes = 0;

// CPU time of one answer's rule, which nobody else's step shall wait for: an answer may be this far ahead of what its
// tokens have earned. A mask of usual rules takes 10 to 100 us, the first in a string up to 1 ms; what an ambiguous
// grammar takes grows with every token, and the library's own limits do not see it.
constexpr int64_t kEarnedNs = 1'000'000, kMostDebtNs = 100'000'000;
// For starting over: a long answer's tokens, at some us each.
constexpr int64_t kMostReplayNs = 250'000'000;

// llguidance's limits, for one compilation and for one mask: fuel and items count work, 14,000 and 20,000 of them take
// 1 ms. A state of the lexer takes 0.6 KB, in each answer.
void SetLimits(LlgParserLimits* limits) {
  limits->initial_lexer_fuel = 1'000'000;
  limits->step_lexer_fuel = 100'000;
  limits->step_max_items = 25'000;
  limits->max_items_in_row = 2'000;
  limits->max_lexer_states = 25'000;
  limits->max_grammar_size = 500'000;
  limits->verbose_errors = false;
}

// The vocabulary as llguidance has it, and what it asks back: shared by all that is compiled over it.
class LlgVocabulary {
 public:
  static Result<std::shared_ptr<const LlgVocabulary>> Make(const LlgFunctions* llg, Vocabulary vocabulary);
  ~LlgVocabulary() {
    if (tokenizer_ != nullptr) llg_->free_tokenizer(tokenizer_);
  }
  LlgVocabulary(const LlgVocabulary&) = delete;
  LlgVocabulary& operator=(const LlgVocabulary&) = delete;

  const LlgFunctions& llg() const { return *llg_; }
  const LlgTokenizer* tokenizer() const { return tokenizer_; }
  int64_t size() const { return vocabulary_.size; }
  bool InRange(TokenId token) const { return token >= 0 && token < vocabulary_.size; }
  // From now on the tokeniser is not asked any more: whoever gave it may go.
  void Close() const {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  bool IsEnd(TokenId token) const {
    return std::find(vocabulary_.end_ids.begin(), vocabulary_.end_ids.end(), token) != vocabulary_.end_ids.end();
  }

 private:
  LlgVocabulary(const LlgFunctions* llg, Vocabulary vocabulary) : llg_(llg), vocabulary_(std::move(vocabulary)) {}
  Status Load();
  std::vector<TokenId> EncodeAll(std::string_view text) const;
  std::vector<TokenId> Encode(std::string_view text) const;
  bool Spells(const std::vector<TokenId>& tokens, std::string_view text) const;
  static size_t Tokenize(const void* self, const uint8_t* bytes, size_t size, uint32_t* tokens, size_t room);

  const LlgFunctions* llg_;
  const Vocabulary vocabulary_;
  LlgTokenizer* tokenizer_ = nullptr;
  std::unordered_map<std::string_view, TokenId> id_of_bytes_;  // of no special token; views into vocabulary_
  size_t longest_token_ = 0;
  mutable std::shared_mutex mutex_;  // held while the tokeniser is asked
  mutable bool closed_ = false;
};

Result<std::shared_ptr<const LlgVocabulary>> LlgVocabulary::Make(const LlgFunctions* llg, Vocabulary vocabulary) {
  std::shared_ptr<LlgVocabulary> made(new LlgVocabulary(llg, std::move(vocabulary)));
  TACTUS_RETURN_IF_ERROR(made->Load());
  return std::shared_ptr<const LlgVocabulary>(std::move(made));
}

Status LlgVocabulary::Load() {
  const Vocabulary& v = vocabulary_;
  TACTUS_CHECK(v.size >= static_cast<int64_t>(v.tokens.size()) && v.special.size() == v.tokens.size());
  if (v.end_ids.empty()) {
    return Unimplemented("the model names no token that ends a text, so that no structured answer could end");
  }
  std::vector<uint32_t> lengths(static_cast<size_t>(v.size), 0);
  std::string bytes;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    if (token.empty()) continue;
    const size_t before = bytes.size();
    if (v.special[i] || IsEnd(static_cast<TokenId>(i))) {
      bytes += static_cast<char>(kSpecialMark);
    } else {
      id_of_bytes_.try_emplace(token, static_cast<TokenId>(i));
      longest_token_ = std::max(longest_token_, token.size());
    }
    bytes += token;
    lengths[i] = static_cast<uint32_t>(bytes.size() - before);
  }
  std::vector<uint32_t> ends(v.end_ids.begin(), v.end_ids.end());
  LlgTokenizerInitV2 init;
  init.vocab_size = static_cast<uint32_t>(v.size);
  init.tok_eos = ends[0];
  init.tok_eos_extra = ends.data() + 1;
  init.tok_eos_extra_count = static_cast<uint32_t>(ends.size() - 1);
  init.token_lens = lengths.data();
  init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  init.tokenize_assumes_string = true;
  init.tokenize_fn = &Tokenize;
  init.tokenize_user_data = this;
  init.slices = kSlices;
  std::array<char, 512> error{};
  tokenizer_ = llg_->new_tokenizer_v2(&init, error.data(), error.size());
  if (tokenizer_ == nullptr) return Internal(fmt::format("llguidance refuses the vocabulary: {}", error.data()));
  return Status();
}

bool LlgVocabulary::Spells(const std::vector<TokenId>& tokens, std::string_view text) const {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= vocabulary_.tokens.size()) return false;
    const std::string& bytes = vocabulary_.tokens[static_cast<size_t>(token)];
    if (!text.starts_with(bytes)) return false;
    text.remove_prefix(bytes.size());
  }
  return text.empty();
}

// Ends early at a byte that no token spells: no answer can match such a rule.
std::vector<TokenId> LlgVocabulary::EncodeAll(std::string_view text) const {
  std::vector<TokenId> tokens;
  {
    const std::shared_lock lock(mutex_);
    if (!closed_) tokens = vocabulary_.encode(text);
  }
  if (Spells(tokens, text)) return tokens;
  tokens.clear();
  for (size_t length = 0; !text.empty(); text.remove_prefix(length)) {
    auto found = id_of_bytes_.end();
    for (length = std::min(longest_token_, text.size()); length > 0 && found == id_of_bytes_.end(); --length) {
      found = id_of_bytes_.find(text.substr(0, length));
    }
    if (found == id_of_bytes_.end()) break;
    tokens.push_back(found->second);
    length = found->first.size();
  }
  return tokens;
}

// Of a long text the first tokens: the library forces those that it gets and asks again when they have come.
std::vector<TokenId> LlgVocabulary::Encode(std::string_view text) const {
  size_t cut = std::max(kTokenizedBytes, kTokenizedTokens * longest_token_);
  if (text.size() <= cut) return EncodeAll(text);
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xc0) == 0x80) --cut;  // not within a character
  std::vector<TokenId> tokens = EncodeAll(text.substr(0, cut));
  tokens.resize(tokens.size() - std::min(tokens.size(), kUnsureTokens));
  return tokens;
}

// Called by the library, through which no exception may pass. Without memory nothing is forced, rightly or wrongly: the
// answer ends with an error then.
size_t LlgVocabulary::Tokenize(const void* self, const uint8_t* bytes, size_t size, uint32_t* tokens, size_t room) {
  forced_bytes += size;
  try {
    const std::vector<TokenId> made =
        static_cast<const LlgVocabulary*>(self)->Encode(std::string_view(reinterpret_cast<const char*>(bytes), size));
    std::copy_n(made.begin(), std::min(room, made.size()), tokens);
    return made.size();
  } catch (const std::exception&) {
    return 0;
  }
}

// A matcher, and the vocabulary that it stands on.
class Matcher {
 public:
  Matcher(std::shared_ptr<const LlgVocabulary> vocabulary, LlgMatcher* matcher)
      : vocabulary_(std::move(vocabulary)), matcher_(matcher) {}
  ~Matcher() { llg().free_matcher(matcher_); }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  const std::shared_ptr<const LlgVocabulary>& vocabulary() const { return vocabulary_; }
  const LlgFunctions& llg() const { return vocabulary_->llg(); }
  LlgMatcher* get() const { return matcher_; }

 private:
  std::shared_ptr<const LlgVocabulary> vocabulary_;
  LlgMatcher* matcher_;
};

class State final : public GrammarState {
 public:
  explicit State(std::shared_ptr<const Matcher> start) : start_(std::move(start)), matcher_(Clone()) {}

  bool FillMask(std::span<uint32_t> mask) override {
    TACTUS_CHECK(static_cast<int64_t>(mask.size()) == (vocabulary().size() + 31) / 32);
    if (exhausted()) return false;
    const Charge charge(&debt_ns_);
    return Compute(mask) || (StartOver() && Compute(mask));
  }

  bool Accept(TokenId token) override {
    const Charge charge(&debt_ns_);
    debt_ns_ -= std::min(debt_ns_, kEarnedNs);
    if (!Consume(token)) {
      // Refused by the rule, or by a library that has met a limit: a mask tells.
      std::vector<uint32_t> mask(static_cast<size_t>((vocabulary().size() + 31) / 32));
      if (Compute(mask) || !StartOver() || !Consume(token)) return false;
    }
    accepted_.push_back(token);
    return true;
  }

  int32_t CountValid(std::span<const TokenId> tokens) override {
    if (llg().matcher_is_error(matcher_->get()) || exhausted()) return 0;
    const Charge charge(&debt_ns_);
    return Valid(tokens);
  }

  void Forced(int32_t most, std::vector<TokenId>* tokens) override {
    tokens->resize(static_cast<size_t>(exhausted() ? 0 : std::max(0, most)));
    if (tokens->empty()) return;
    const Charge charge(&debt_ns_);
    const int32_t count =
        llg().matcher_compute_ff_tokens(matcher_->get(), reinterpret_cast<uint32_t*>(tokens->data()), tokens->size());
    tokens->resize(static_cast<size_t>(std::max(0, count)));
  }

 private:
  // Adds the CPU time of its life.
  class Charge {
   public:
    explicit Charge(int64_t* debt_ns) : debt_ns_(*debt_ns), begin_ns_(ThreadCpuNs()) {}
    ~Charge() { debt_ns_ += ThreadCpuNs() - begin_ns_; }
    Charge(const Charge&) = delete;
    Charge& operator=(const Charge&) = delete;

   private:
    int64_t& debt_ns_;
    const int64_t begin_ns_;
  };
  bool exhausted() const { return debt_ns_ > kMostDebtNs; }

  int32_t Valid(std::span<const TokenId> tokens) {
    if (Ended()) return !tokens.empty() && vocabulary().IsEnd(tokens[0]) ? 1 : 0;
    const auto unknown =
        std::find_if_not(tokens.begin(), tokens.end(), [&](TokenId t) { return vocabulary().InRange(t); });
    static_assert(sizeof(TokenId) == sizeof(uint32_t));
    return std::max(0, llg().matcher_validate_tokens(matcher_->get(), reinterpret_cast<const uint32_t*>(tokens.data()),
                                                     static_cast<size_t>(unknown - tokens.begin())));
  }

  const LlgVocabulary& vocabulary() const { return *start_->vocabulary(); }
  const LlgFunctions& llg() const { return start_->llg(); }
  // Nothing but end tokens may come.
  bool Ended() const { return llg().matcher_is_stopped(matcher_->get()); }

  std::unique_ptr<Matcher> Clone() const {
    return std::make_unique<Matcher>(start_->vocabulary(), llg().clone_matcher(start_->get()));
  }
  bool Compute(std::span<uint32_t> mask) {
    forced_bytes = 0;
    return llg().matcher_compute_mask_into(matcher_->get(), mask.data(), mask.size_bytes()) == 0 &&
           forced_bytes <= kMostForcedBytes;
  }
  bool Consume(TokenId token) {
    if (llg().matcher_is_error(matcher_->get()) || Valid({&token, 1}) != 1)
      return false;  // a token that consume_token refuses would break the matcher
    return Ended() || llg().matcher_consume_token(matcher_->get(), static_cast<uint32_t>(token)) == 0;
  }
  // The lexer keeps each state that a mask has met, some four for a byte of a string with a maximum length, and at
  // max_lexer_states it stops. A fresh one, taken the way of the answer alone, has room again.
  bool StartOver() {
    const int64_t begin_ns = ThreadCpuNs();
    matcher_ = Clone();
    const bool same = std::all_of(accepted_.begin(), accepted_.end(), [&](TokenId token) {
      return Consume(token) && ThreadCpuNs() - begin_ns <= kMostReplayNs;
    });
    debt_ns_ -= ThreadCpuNs() - begin_ns;  // is no work of the rule's making
    return same;
  }

  const std::shared_ptr<const Matcher> start_;
  std::unique_ptr<Matcher> matcher_;
  std::vector<TokenId> accepted_;
  int64_t debt_ns_ = 0;
};

class Grammar final : public TokenGrammar {
 public:
  explicit Grammar(std::shared_ptr<const Matcher> start) : start_(std::move(start)) {}

  std::unique_ptr<GrammarState> Start() const override { return std::make_unique<State>(start_); }
  int64_t vocab_size() const override { return start_->vocabulary()->size(); }

 private:
  const std::shared_ptr<const Matcher> start_;  // at the beginning; only cloned
};

// A rule as it is handed to llguidance.
struct Source {
  OutputRule::Kind kind = OutputRule::Kind::kNone;
  std::string text;
  std::optional<json_text::Json> schema;  // of the kinds that are one
  bool as_lark = false;                   // a schema is handed over as a grammar
  bool changed = false;                   // a regex is not as the client wrote it

  static Result<std::shared_ptr<const Source>> Of(const OutputRule& rule) {
    auto source = std::make_shared<Source>();
    source->kind = rule.kind;
    source->text = rule.kind == OutputRule::Kind::kRegex ? AsciiClasses(rule.text) : rule.text;
    source->changed = source->text != rule.text;
    if (rule.kind == OutputRule::Kind::kJsonObject) source->schema = json_text::Json{{"type", "object"}};
    if (rule.kind == OutputRule::Kind::kJsonSchema) {
      auto parsed = ParseSchema(rule.text);
      if (!parsed.ok()) return InvalidArgument(fmt::format("json_schema: {}", parsed.status().message()));
      source->schema = std::move(parsed).value();
    }
    if (source->schema) {
      source->text = SchemaText(*source->schema);
      TACTUS_ASSIGN_OR_RETURN(const json_text::Json handed_over, json_text::ParseJson(source->text));
      auto exact = ExactGrammar(handed_over);
      if (!exact.ok()) return InvalidArgument(fmt::format("json_schema: {}", exact.status().message()));
      source->as_lark = exact->has_value();
      if (source->as_lark) source->text = std::move(**exact);
    } else if (rule.kind == OutputRule::Kind::kLark) {
      auto exact = WithExactNumbers(std::move(source->text));
      if (!exact.ok()) return InvalidArgument(fmt::format("lark: {}", exact.status().message()));
      source->text = std::move(*exact);
    }
    if (source->text.find('\0') != std::string::npos) {
      return InvalidArgument(fmt::format("{}: a zero byte in the text", RuleName(rule.kind)));
    }
    return std::shared_ptr<const Source>(std::move(source));
  }
};

// What became of it: the grammar, unless the status says why there is none.
struct Compiled {
  Status status;
  std::shared_ptr<const TokenGrammar> grammar;
};

// On a thread with a large stack.
void CompileSource(const std::shared_ptr<const LlgVocabulary>& vocabulary, const Source& source, Compiled* compiled) {
  if (source.schema) {
    if (const Status fault = CheckSchema(*source.schema); !fault.ok()) {
      compiled->status = InvalidArgument(fmt::format("json_schema: {}", fault.message()));
      return;
    }
    if (const int patterns = MostPatterns(*source.schema); patterns > kMostPatterns) {
      compiled->status = InvalidArgument(fmt::format(
          "json_schema: {} patterns and formats bear on one string, through 'allOf' and '$ref'; the limit is {}",
          patterns, kMostPatterns));
      return;
    }
  }
  const LlgFunctions& llg = vocabulary->llg();
  LlgConstraintInit init;
  llg.constraint_init_set_defaults(&init, vocabulary->tokenizer());
  init.log_stderr_level = 0;
  SetLimits(&init.limits);
  const char* kind = RuleName(source.as_lark  ? OutputRule::Kind::kLark
                              : source.schema ? OutputRule::Kind::kJsonSchema
                                              : source.kind);
  auto matcher = std::make_unique<Matcher>(vocabulary, llg.new_matcher(&init, kind, source.text.c_str()));
  // The first mask belongs to the work that a rule can ask for, and every answer starts with it: clones have it.
  std::vector<uint32_t> mask(static_cast<size_t>((vocabulary->size() + 31) / 32));
  if (!llg.matcher_is_error(matcher->get())) {
    forced_bytes = 0;
    (void)llg.matcher_compute_mask_into(matcher->get(), mask.data(), mask.size() * sizeof(mask[0]));
    if (forced_bytes > kMostForcedBytes) {
      compiled->status = InvalidArgument(fmt::format(
          "{}: it leaves no choice about {} bytes of text one after the other; the limit is {}; ask for less "
          "fixed text",
          RuleName(source.kind), forced_bytes, kMostForcedBytes));
      return;
    }
  }
  if (const char* error = llg.matcher_get_error(matcher->get()); error != nullptr) {
    compiled->status = RuleError(source.kind, error, source.schema ? &*source.schema : nullptr, source.changed);
  } else {
    compiled->grammar = std::make_shared<Grammar>(std::move(matcher));
  }
}

class LlguidanceEngine final : public GrammarEngine {
 public:
  LlguidanceEngine(std::shared_ptr<const LlgVocabulary> vocabulary, const GrammarLimits& limits)
      : limits_(limits),
        vocabulary_(std::move(vocabulary)),
        cache_(std::make_shared<RuleCache>(limits.kept_rules, limits.kept_text_bytes)),
        calls_(limits.compiles_at_once, kStackBytes) {}

  ~LlguidanceEngine() override { vocabulary_->Close(); }

  Result<std::shared_ptr<const TokenGrammar>> Compile(const OutputRule& rule, StopToken stop) override {
    if (static_cast<int64_t>(rule.text.size()) > limits_.text_bytes) {
      return Status(StatusCode::kTooLarge, fmt::format("{}: {} bytes; the limit is {}", RuleName(rule.kind),
                                                       rule.text.size(), limits_.text_bytes));
    }
    auto kept = cache_->Find(rule);
    if (kept != nullptr) return kept;
    TACTUS_ASSIGN_OR_RETURN(auto source, Source::Of(rule));
    const auto compiled = std::make_shared<Compiled>();
    const auto left = std::make_shared<std::atomic<bool>>(false);
    const auto call = [compiled, left, cache = cache_, vocabulary = vocabulary_, source = std::move(source), rule] {
      CompileSource(vocabulary, *source, compiled.get());
      // What nobody waits for any more is not kept: it has taken too long, and may be as large.
      if (compiled->status.ok() && !left->load()) cache->Keep(rule, compiled->grammar);
    };
    // Of a burst of one new rule those that wait take what the first have compiled.
    const auto is_kept = [&] { return (kept = cache_->Find(rule)) != nullptr; };
    const WorkerPool::Waiting waiting;
    TACTUS_ASSIGN_OR_RETURN(const DeepCalls::End end, calls_.Run(call, limits_.compile_ms, stop, is_kept));
    left->store(end == DeepCalls::End::kStopped || end == DeepCalls::End::kTooLong);
    switch (end) {
      case DeepCalls::End::kDone:
        break;
      case DeepCalls::End::kNeedless:
        return kept;
      case DeepCalls::End::kStopped:
        return Status(StatusCode::kCancelled, "stopped");
      case DeepCalls::End::kNoPlace:
        return Status(StatusCode::kResourceExhausted,
                      fmt::format("{}: other rules were being compiled for {} s; try again later", RuleName(rule.kind),
                                  limits_.compile_ms / 1000));
      case DeepCalls::End::kTooLong:
        return InvalidArgument(fmt::format(
            "{}: compiling it takes longer than {} s, the limit; make it simpler, or try again if the machine was busy",
            RuleName(rule.kind), limits_.compile_ms / 1000));
    }
    if (!compiled->status.ok()) return compiled->status;
    return compiled->grammar;
  }

 private:
  const GrammarLimits limits_;
  const std::shared_ptr<const LlgVocabulary> vocabulary_;
  const std::shared_ptr<RuleCache> cache_;  // with compilations that are left behind
  DeepCalls calls_;
};

}  // namespace

const char* RuleName(OutputRule::Kind kind) {
  switch (kind) {
    case OutputRule::Kind::kNone:
      break;
    case OutputRule::Kind::kJsonObject:
      return "json_object";
    case OutputRule::Kind::kJsonSchema:
      return "json_schema";
    case OutputRule::Kind::kRegex:
      return "regex";
    case OutputRule::Kind::kLark:
      return "lark";
  }
  TACTUS_CHECK(false);
}

Result<std::unique_ptr<GrammarEngine>> GrammarEngine::Create(Vocabulary vocabulary, const GrammarLimits& limits) {
  TACTUS_ASSIGN_OR_RETURN(const LlgFunctions* llg, LoadLlguidance());
  TACTUS_ASSIGN_OR_RETURN(auto loaded, LlgVocabulary::Make(llg, std::move(vocabulary)));
  return std::unique_ptr<GrammarEngine>(std::make_unique<LlguidanceEngine>(std::move(loaded), limits));
}

}  // namespace tactus::grammar
