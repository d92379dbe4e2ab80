// Checks answers against rules, for comparisons with other implementations: reads lines
//   {"kind": "json_schema", "rule": "...", "answers": ["...", ...]}
// and prints one line for each, {"error": "..."} or {"accepted": [-1, 17, ...]}: per answer the number of bytes
// accepted before one was refused, -1 if all were and the answer may end there. Every byte is a token.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "base/json.h"
#include "language/grammar/grammar_engine.h"
#include "language/grammar/small_vocabulary.h"

namespace tactus::language {
namespace {

int AcceptedBytes(const TokenGrammar& grammar, const std::string& answer) {
  const auto state = grammar.Start();
  for (size_t i = 0; i < answer.size(); ++i) {
    if (!state->Accept(static_cast<unsigned char>(answer[i]))) return static_cast<int>(i);
  }
  return state->Accept(kEnd) ? -1 : static_cast<int>(answer.size());
}

int Main() {
  setenv("TACTUS_GRAMMAR_HELPER", TACTUS_GRAMMAR_PROGRAM, 0);
  const std::map<std::string, OutputRule::Kind> kinds = {{"json_object", OutputRule::Kind::kJsonObject},
                                                         {"json_schema", OutputRule::Kind::kJsonSchema},
                                                         {"regex", OutputRule::Kind::kRegex},
                                                         {"lark", OutputRule::Kind::kLark}};
  GrammarLimits limits;
  limits.compile_ms = 60'000;  // for a busy machine
  const auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  if (!engine.ok()) {
    std::cerr << "grammar_lines: " << engine.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto item = SortedJson::parse(line);
    const auto grammar = (*engine)->Compile({kinds.at(item["kind"]), item["rule"]});
    SortedJson out;
    if (grammar.ok()) {
      out["accepted"] = SortedJson::array();
      for (const auto& answer : item["answers"]) out["accepted"].push_back(AcceptedBytes(**grammar, answer));
    } else {
      out["error"] = grammar.status().message();
    }
    std::cout << out.dump() << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace tactus::language

int main() {
  return tactus::language::Main();
}
