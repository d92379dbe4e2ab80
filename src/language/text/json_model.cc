// The model of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel.
#include <utility>

#include "language/text/json_component.h"

namespace tactus::language {
namespace {

// {text: id}.
Status ReadJsonVocabulary(const JsonComponent& model, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* vocabulary, model.Object("vocab"));
  spec->tokens.reserve(vocabulary->size());
  for (const auto& [text, id] : vocabulary->items()) {
    if (!id.is_number_integer()) return model.Bad("vocab: the id of \"" + text + "\" is " + id.dump().substr(0, 40));
    TACTUS_RETURN_IF_ERROR(PutToken(text, id.get<int64_t>(), TokenKind::kNormal, spec));
  }
  return {};
}

Status ReadUnknownToken(const JsonComponent& model, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, model.String("unk_token", ""));
  const SortedJson& vocabulary = model["vocab"];
  const auto found = vocabulary.find(text);
  if (found != vocabulary.end()) spec->unk_id = found->get<TokenId>();
  return {};
}

Status ReadJsonMerges(const JsonComponent& model, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* merges, model.List("merges"));
  spec->merges.reserve(merges->size());
  for (const SortedJson& merge : *merges) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec->merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      return model.Bad("merges: merge " + std::to_string(spec->merges.size()) + " is not two tokens");
    }
    spec->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return {};
}

Status ReadBpe(const JsonComponent& model, TokenizerSpec* spec) {
  const SortedJson& dropout = model["dropout"];
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0)) return model.Unsupported("dropout");
  TACTUS_ASSIGN_OR_RETURN(spec->ignore_merges, model.Bool("ignore_merges", false));
  TACTUS_ASSIGN_OR_RETURN(spec->fuse_unknown, model.Bool("fuse_unk", false));
  TACTUS_ASSIGN_OR_RETURN(spec->byte_fallback, model.Bool("byte_fallback", false));
  TACTUS_ASSIGN_OR_RETURN(spec->continuing_prefix, model.String("continuing_subword_prefix", ""));
  TACTUS_ASSIGN_OR_RETURN(spec->word_suffix, model.String("end_of_word_suffix", ""));
  TACTUS_RETURN_IF_ERROR(ReadJsonVocabulary(model, spec));
  TACTUS_RETURN_IF_ERROR(ReadUnknownToken(model, spec));
  return ReadJsonMerges(model, spec);
}

// [[text, score], ...] in the order of the ids.
Status ReadUnigram(const JsonComponent& model, TokenizerSpec* spec) {
  TACTUS_ASSIGN_OR_RETURN(const SortedJson* vocabulary, model.List("vocab"));
  for (const SortedJson& entry : *vocabulary) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return model.Bad("vocab: entry " + std::to_string(spec->tokens.size()) + " is not a token and its score");
    }
    const auto id = static_cast<int64_t>(spec->tokens.size());
    TACTUS_RETURN_IF_ERROR(PutToken(entry[0].get<std::string>(), id, TokenKind::kNormal, spec));
    spec->scores.push_back(entry[1].get<double>());
  }
  TACTUS_ASSIGN_OR_RETURN(const int64_t unknown, model.Int("unk_id", -1));
  if (unknown < -1 || unknown >= static_cast<int64_t>(spec->tokens.size())) {
    return model.Bad("unk_id is " + std::to_string(unknown) + ", but vocab has " + std::to_string(spec->tokens.size()) +
                     " tokens");
  }
  spec->unk_id = static_cast<TokenId>(unknown);
  TACTUS_ASSIGN_OR_RETURN(spec->byte_fallback, model.Bool("byte_fallback", false));
  return {};
}

Status ReadWordPiece(const JsonComponent& model, TokenizerSpec* spec) {
  TACTUS_RETURN_IF_ERROR(ReadJsonVocabulary(model, spec));
  TACTUS_RETURN_IF_ERROR(ReadUnknownToken(model, spec));
  TACTUS_ASSIGN_OR_RETURN(spec->continuing_prefix, model.String("continuing_subword_prefix", "##"));
  TACTUS_ASSIGN_OR_RETURN(spec->max_word_characters, model.Int("max_input_chars_per_word", 100));
  return {};
}

// Files of old versions leave out the type.
std::string TypeOfModel(const JsonComponent& model) {
  if (model.Has("type")) return model.Type();
  if (model.Has("merges")) return "BPE";
  if (model["vocab"].is_array()) return "Unigram";
  return model.Has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

}  // namespace

Status PutToken(const std::string& text, int64_t id, TokenKind kind, TokenizerSpec* spec) {
  if (id < 0 || id > kMaxTokenId) {
    return DataLoss("tokenizer.json: token \"" + text + "\" has id " + std::to_string(id) + ", the limit is " +
                    std::to_string(kMaxTokenId));
  }
  const auto at = static_cast<size_t>(id);
  if (at >= spec->tokens.size()) {
    spec->tokens.resize(at + 1);
    spec->kinds.resize(at + 1, TokenKind::kUnused);
  }
  if (!spec->tokens[at].empty() && spec->tokens[at] != text) {
    return DataLoss("tokenizer.json: id " + std::to_string(id) + " is both \"" + spec->tokens[at] + "\" and \"" + text +
                    "\"");
  }
  if (spec->tokens[at].empty()) spec->kinds[at] = kind;
  spec->tokens[at] = text;
  return {};
}

Status ReadJsonModel(const SortedJson& part, TokenizerSpec* spec) {
  const JsonComponent model(part, "model");
  const std::string type = TypeOfModel(model);
  const JsonComponent named(part, "model (" + type + ")");
  if (type == "BPE") {
    spec->model = TokenizerSpec::Model::kBpe;
    return ReadBpe(named, spec);
  }
  if (type == "Unigram") {
    spec->model = TokenizerSpec::Model::kUnigram;
    return ReadUnigram(named, spec);
  }
  if (type == "WordPiece") {
    spec->model = TokenizerSpec::Model::kWordPiece;
    return ReadWordPiece(named, spec);
  }
  if (type != "WordLevel") return model.Unsupported("type \"" + type + "\"");
  spec->model = TokenizerSpec::Model::kWordLevel;
  TACTUS_RETURN_IF_ERROR(ReadJsonVocabulary(named, spec));
  return ReadUnknownToken(named, spec);
}

}  // namespace tactus::language
