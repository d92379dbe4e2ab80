#include "language/grammar/llg_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace tactus::language {
namespace {

constexpr uint8_t kSpecialMark = 0xff;  // before a special token's name

// Sets of tokens that a mask allows as a whole, without checking each, where a lexeme allows all of them: the insides
// of strings, lines and words. Chosen by bench/grammar; more sets cost more tests than they save.
constexpr const char* kSlices[] = {R"([a-z]{1,10})",
                                   R"([a-zA-Z0-9]{1,10})",
                                   R"([^"\\\x00-\x1F\x7F]{1,5})",
                                   R"([^"\\\x00-\x1F\x7F]{1,10})",
                                   R"([^"\\\x00-\x1F\x7F]{1,30})",
                                   R"([^\x00-\x1F\x7F]{1,30})",
                                   R"([^\x0A]+)",
                                   nullptr};

// Forced text tokenised per call: this many bytes, or the length of this many longest tokens.
constexpr size_t kTokenizedBytes = 2 << 10, kTokenizedTokens = 16;
// Tokens before a cut that could be tokenised otherwise with the text behind it.
constexpr size_t kUnsureTokens = 4;

// Bytes of forced text that the library has passed to this thread for tokenising since it was set to 0: its interface
// does not report the amount.
thread_local int64_t asked_bytes = 0;

// llguidance's limits, for one compilation and for one mask: fuel and items count work, 14,000 and 20,000 of them take
// 1 ms, so that a mask ends within about 10 ms for any rule. A state of the lexer takes 0.6 KB and more, in each
// answer.
void SetLimits(LlgParserLimits* limits) {
  limits->initial_lexer_fuel = 1'000'000;
  limits->step_lexer_fuel = 100'000;
  limits->step_max_items = 25'000;
  limits->max_items_in_row = 2'000;
  limits->max_lexer_states = 25'000;
  limits->max_grammar_size = 500'000;
  limits->verbose_errors = false;
}

}  // namespace

LlgVocabulary::~LlgVocabulary() {
  if (tokenizer_ != nullptr) llg_->free_tokenizer(tokenizer_);
}

void LlgVocabulary::Close() const {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool LlgVocabulary::IsEnd(TokenId token) const {
  return std::find(vocabulary_.end_ids.begin(), vocabulary_.end_ids.end(), token) != vocabulary_.end_ids.end();
}

Result<std::shared_ptr<const LlgVocabulary>> LlgVocabulary::Make(const LlgFunctions* llg, Vocabulary vocabulary) {
  std::shared_ptr<LlgVocabulary> made(new LlgVocabulary(llg, std::move(vocabulary)));
  TACTUS_RETURN_IF_ERROR(made->Load());
  return std::shared_ptr<const LlgVocabulary>(std::move(made));
}

Status LlgVocabulary::Load() {
  const Vocabulary& v = vocabulary_;
  TACTUS_CHECK(v.size >= static_cast<int64_t>(v.tokens.size()) && v.special.size() == v.tokens.size());
  if (v.end_ids.empty()) {
    return Unimplemented("the model names no end token, so that no structured answer could end");
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

// Stops at a byte that no token has: no answer can match such a rule.
std::vector<TokenId> LlgVocabulary::EncodeAll(std::string_view text) const {
  std::vector<TokenId> tokens;
  if (vocabulary_.encode) {
    const std::shared_lock lock(mutex_);
    if (!closed_) tokens = vocabulary_.encode(text);
  }
  if (!tokens.empty() && Spells(tokens, text)) return tokens;
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

// For a long text, its first tokens: the library forces those and calls again once they have been sampled.
std::vector<TokenId> LlgVocabulary::Encode(std::string_view text) const {
  size_t cut = std::max(kTokenizedBytes, kTokenizedTokens * longest_token_);
  if (text.size() <= cut) return EncodeAll(text);
  while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xc0) == 0x80) --cut;  // not within a character
  std::vector<TokenId> tokens = EncodeAll(text.substr(0, cut));
  tokens.resize(tokens.size() - std::min(tokens.size(), kUnsureTokens));
  return tokens;
}

// Called by the library, through which no exception may pass. Without memory no text is forced; the answer then ends
// with an error.
size_t LlgVocabulary::Tokenize(const void* self, const uint8_t* bytes, size_t size, uint32_t* tokens, size_t room) {
  asked_bytes += static_cast<int64_t>(size);
  try {
    const std::vector<TokenId> made =
        static_cast<const LlgVocabulary*>(self)->Encode(std::string_view(reinterpret_cast<const char*>(bytes), size));
    std::copy_n(made.begin(), std::min(room, made.size()), tokens);
    return made.size();
  } catch (const std::exception&) {
    return 0;
  }
}

std::unique_ptr<Matcher> Matcher::Of(std::shared_ptr<const LlgVocabulary> vocabulary, const char* kind,
                                     const std::string& text) {
  const LlgFunctions& llg = vocabulary->llg();
  LlgConstraintInit init;
  llg.constraint_init_set_defaults(&init, vocabulary->tokenizer());
  init.log_stderr_level = 0;
  SetLimits(&init.limits);
  LlgMatcher* const matcher = llg.new_matcher(&init, kind, text.c_str());
  return std::unique_ptr<Matcher>(new Matcher(std::move(vocabulary), matcher));
}

Matcher::~Matcher() {
  llg().free_matcher(matcher_);
}

std::unique_ptr<Matcher> Matcher::Clone() const {
  return std::unique_ptr<Matcher>(new Matcher(vocabulary_, llg().clone_matcher(matcher_)));
}

bool Matcher::FillMask(uint32_t* mask, size_t words) {
  asked_bytes = 0;
  const bool filled = llg().matcher_compute_mask_into(matcher_, mask, words * sizeof(*mask)) == 0;
  forced_bytes_ = asked_bytes;
  return filled && forced_bytes_ <= kMostForcedBytes;
}

}  // namespace tactus::language
