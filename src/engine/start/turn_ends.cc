#include "engine/start/turn_ends.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/printable.h"

namespace tactus::engine {
namespace {

// Ends of texts, messages and turns, as spelled by published models. A name counts only if it is one token.
constexpr std::string_view kKnownEnds[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|end_of_turn|>",
    "<|endofturn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "<|eos|>",
    "[|endofturn|]",
    "<|end_of_sentence|>",
    "<seed:eos>",
    "[e~[",
    "<|observation|>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
};
// In the harmony format <|end|> closes a message in the middle of a turn and <|return|> closes the turn.
constexpr std::string_view kEndsMessage = "<|end|>", kEndsTurn = "<|return|>";

constexpr std::string_view kAnswer = "tactusanswer";  // placeholder for an answer; occurs in no template

class Finder {
 public:
  Finder(const compute::ModelDescription& description, const ModelText& text)
      : d_(description), text_(text), tokenizer_(*text.tokenizer) {}

  TurnEnds Find() {
    AddStated();
    AddOfTemplate();
    AddKnown();
    if (out_.tokens.empty()) {
      Warn(
          "neither the model's files nor its chat template name an end of text: answers end by their length alone; "
          "set `stop` or `stop_token_ids`");
    }
    return std::move(out_);
  }

 private:
  std::string Shown(TokenId id) const {
    return fmt::format("{} '{}'", id, Printable(std::string(tokenizer_.TokenText(id))));
  }
  void Warn(std::string text) { out_.warnings.push_back(std::move(text)); }

  bool Has(TokenId id) const {
    return std::any_of(out_.tokens.begin(), out_.tokens.end(),
                       [&](const compute::EndToken& end) { return end.id == id; });
  }
  void Add(TokenId id, std::string source) {
    if (id < 0 || id >= d_.config.vocab_size || Has(id)) return;
    out_.tokens.push_back({id, Printable(std::string(tokenizer_.TokenText(id))), std::move(source)});
  }

  // A control token, or one whose name has the form of a marker (some files call their markers user-defined).
  bool IsMarker(TokenId id) const {
    if (tokenizer_.IsSpecial(id)) return true;
    const std::string_view name = tokenizer_.TokenText(id);
    return name.size() >= 4 &&
           ((name.front() == '<' && name.back() == '>') || (name.front() == '[' && name.back() == ']'));
  }
  // The id of `marker` if it is a single token; -1: it is text.
  TokenId TokenOf(std::string_view marker) const {
    const std::vector<TokenId> ids = tokenizer_.Encode(marker, false, true);
    return ids.size() == 1 && IsMarker(ids[0]) && tokenizer_.TokenText(ids[0]) == marker ? ids[0] : -1;
  }

  void AddStated() {
    const auto& gguf = d_.gguf_tokenizer;
    const bool is_gguf = d_.source == compute::ModelDescription::Source::kGguf;
    for (const TokenId id : d_.config.stop_ids) {
      // The id that transformers assumes for the architecture is another token in many vocabularies.
      const bool assumed = id == d_.config.assumed_stop_id;
      if (assumed && !IsMarker(id)) continue;
      std::string source = assumed          ? "assumed of the architecture"
                           : !is_gguf       ? "config.json or generation_config.json"
                           : id == gguf.eos ? "tokenizer.ggml.eos_token_id"
                           : id == gguf.eot ? "tokenizer.ggml.eot_token_id"
                                            : "tokenizer.ggml.eom_token_id";
      if (!IsMarker(id)) {
        Warn(fmt::format("the end of text is token {}, which is not a control token: answers end where it occurs ({})",
                         Shown(id), source));
      }
      Add(id, std::move(source));
    }
    Add(tokenizer_.eos_id(), is_gguf ? "tokenizer.ggml.eos_token_id" : "tokenizer_config.json");
  }

  void AddKnown() {
    const bool harmony = TokenOf(kEndsTurn) >= 0;
    for (const std::string_view name : kKnownEnds) {
      if (name == kEndsMessage && harmony) continue;
      Add(TokenOf(name), "well-known control token");
    }
  }

  // Text that the template writes after an answer, without leading white space; empty: none, or rendering failed.
  std::string Behind(bool goes_on) const {
    Json messages = {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", kAnswer}}};
    if (goes_on) messages.push_back({{"role", "user"}, {"content", "b"}});
    const Json variables = {{"messages", std::move(messages)},
                            {"add_generation_prompt", false},
                            {"bos_token", text_.bos_token},
                            {"eos_token", text_.eos_token}};
    const auto rendered = text_.chat_template->Render(variables);
    if (!rendered.ok()) return "";
    const size_t answer = rendered->rfind(kAnswer);
    if (answer == std::string::npos) return "";
    std::string behind = rendered->substr(answer + kAnswer.size());
    behind.erase(0, behind.find_first_not_of(" \t\r\n"));
    return behind;
  }

  void AddOfTemplate() {
    if (text_.chat_template == nullptr) return;
    const std::string last = Behind(false);
    // The marker that begins the next turn is also an end: a template that writes nothing after an answer relies on it.
    const std::string& behind = last.empty() ? Behind(true) : last;
    if (behind.empty()) return;
    const std::vector<TokenId> ids = tokenizer_.Encode(behind, false, true);
    if (ids.empty()) return;
    const TokenId id = ids[0];
    if (last.empty() && id == tokenizer_.bos_id()) return;  // it begins a text, not a turn
    if (!IsMarker(id)) {
      if (last.empty()) return;  // the next speaker's name, in words
      Warn(fmt::format(
          "the chat template ends an answer with '{}', which is not a control token of this model: answers may run "
          "on into invented turns; set it as `stop`",
          Printable(behind.substr(0, behind.find_first_of("\n")).substr(0, 60))));
      return;
    }
    if (!Has(id)) {
      Warn(
          fmt::format("the model's files state that {}, but its chat template ends an answer with token {}: "
                      "answers end at either",
                      WhatFilesSay(), Shown(id)));
    }
    Add(id, "chat template");
  }

  std::string WhatFilesSay() const {
    if (out_.tokens.empty()) return "no token ends a text";
    std::string list;
    for (const compute::EndToken& end : out_.tokens)
      list += fmt::format("{}{} '{}' ({})", list.empty() ? "" : ", ", end.id, end.text, end.source);
    return fmt::format("token {} ends a text", list);
  }

  const compute::ModelDescription& d_;
  const ModelText& text_;
  const language::Tokenizer& tokenizer_;
  TurnEnds out_;
};

}  // namespace

std::vector<TokenId> TurnEnds::ids() const {
  std::vector<TokenId> ids;
  for (const compute::EndToken& end : tokens) ids.push_back(end.id);
  return ids;
}

TurnEnds FindTurnEnds(const compute::ModelDescription& description, const ModelText& text) {
  return Finder(description, text).Find();
}

}  // namespace tactus::engine
