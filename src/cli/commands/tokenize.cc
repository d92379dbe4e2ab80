// `tactus tokenize MODEL [TEXT]`: prints the tokens of a text (an argument, or standard input) as the server computes
// them.
#include <cstdio>
#include <limits>

#include "base/input_file.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/option_binding.h"
#include "compute/model/catalog.h"
#include "engine/start/model_text.h"

namespace tactus::cli {
namespace {

constexpr int64_t kMostTextBytes = int64_t{64} << 20;  // largest single text; --lines reads any number of them

struct TokenizeOptions {
  std::string model, text;
  bool ids = false, json = false, add_special = false, lines = false;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Tokenising");
    v.Field("ids", ids, {.help = "print only the ids, on one line"});
    v.Field("json", json, {.help = "print one JSON object: count, tokens, token_strs"});
    v.Field("add-special-tokens", add_special, {.help = "add BOS and EOS as the model's post-processor does"});
    v.Field("lines", lines, {.help = "tokenise each input line separately and print its ids on one line"});
  }
};

std::string IdLine(const std::vector<TokenId>& ids) {
  std::string line;
  for (TokenId id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line;
}

void Print(const language::Tokenizer& tokenizer, const TokenizeOptions& options, const std::string& text) {
  const auto ids = tokenizer.Encode(text, options.add_special, true);
  if (options.json) {
    Json out = {{"count", ids.size()}, {"tokens", ids}, {"token_strs", SortedJson::array()}};
    for (TokenId id : ids) out["token_strs"].push_back(std::string(tokenizer.TokenText(id)));
    std::printf("%s\n", out.dump(-1, ' ', false, SortedJson::error_handler_t::replace).c_str());
  } else if (options.ids || options.lines) {
    std::printf("%s\n", IdLine(ids).c_str());
  } else {
    for (TokenId id : ids) {
      const SortedJson shown = std::string(tokenizer.TokenBytes(id));
      std::printf("%8d  %s\n", id, shown.dump(-1, ' ', false, SortedJson::error_handler_t::replace).c_str());
    }
  }
}

Status PrintInput(const language::Tokenizer& tokenizer, const TokenizeOptions& options) {
  if (!options.lines) {
    InputFile input = InputFile::StandardInput(kMostTextBytes);
    TACTUS_ASSIGN_OR_RETURN(const std::string text, input.ReadAll());
    Print(tokenizer, options, text);
    return Status();
  }
  InputFile input = InputFile::StandardInput(std::numeric_limits<int64_t>::max());
  std::string line;
  while (std::ferror(stdout) == 0) {
    TACTUS_ASSIGN_OR_RETURN(const bool more, input.ReadLine(&line, kMostTextBytes));
    if (!more) break;
    Print(tokenizer, options, line);
  }
  return Status();
}

}  // namespace

int TokenizeCommand(const Args& args) {
  TokenizeOptions options;
  CommandLine line("tokenize", "MODEL [TEXT] [options]",
                   "Prints the tokens of a text. Without TEXT it is read from standard input.");
  line.Add(options);
  line.Positional("MODEL", &options.model, true,
                  "a GGUF file, a Hugging Face folder, or a name of `tactus models list`");
  std::vector<std::string> text;
  line.Rest("TEXT", &text);
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (text.size() > 1) {
    std::fprintf(stderr, "tactus tokenize: %zu texts given; put one text in quotes\n", text.size());
    return kExitUsage;
  }
  auto load = [&]() -> Result<engine::ModelText> {
    TACTUS_ASSIGN_OR_RETURN(const std::string path, LocalModel(options.model));
    TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
    return engine::LoadModelText(description, {});
  };
  auto model = load();
  if (!model.ok()) {
    std::fprintf(stderr, "tactus tokenize: %s\n", model.status().message().c_str());
    return kExitFailed;
  }
  if (!text.empty()) {
    Print(*model->tokenizer, options, text[0]);
    return kExitOk;
  }
  const Status read = PrintInput(*model->tokenizer, options);
  if (!read.ok()) std::fprintf(stderr, "tactus tokenize: %s\n", read.message().c_str());
  return read.ok() ? kExitOk : kExitFailed;
}

}  // namespace tactus::cli
