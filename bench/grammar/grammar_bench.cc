// The cost of grammars: compiling one, starting an answer, and the mask before each token.
//   bench_grammar MODEL       a GGUF file or Hugging Face folder, of which only the tokeniser is read bench_grammar
//   RANKS 256   a file of tokens in base64 with their ranks (tiktoken's format; the tokenizer.model of
//                             Llama 3 is one), and the number of special tokens after them; texts use the longest
//                             tokens
// One thread; times of this machine.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compute/weights/model_description.h"
#include "engine/output_rules.h"
#include "engine/start/model_text.h"

namespace tactus {
namespace {

struct Case {
  const char* name;
  OutputRule::Kind kind;
  const char* rule;
  const char* answer;
};

using Kind = OutputRule::Kind;

constexpr Case kCases[] = {
    {"any JSON object", Kind::kJsonObject, "",
     R"({"name": "Alice went to the market", "age": 3, "tags": ["a", "b", 1.5], "x": {"y": null}})"},
    {"schema: a tool call", Kind::kJsonSchema,
     R"({"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]},
         "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city", "unit"],
         "additionalProperties": false})",
     R"({"city": "San Francisco, California", "unit": "celsius", "days": 7})"},
    {"schema: a person, formats", Kind::kJsonSchema,
     R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type":
         "string", "format": "email"}, "born": {"type": "string", "format": "date"}, "tags": {"type": "array", "items":
         {"type": "string"}}}, "required": ["name", "age", "email", "born"], "additionalProperties": false})",
     R"({"name": "Alice Liddell", "age": 33, "email": "alice@example.com", "born": "1990-02-03", "tags": ["curious"]})"},
    {"schema: strings of 300", Kind::kJsonSchema,
     R"({"type": "object", "properties": {"title": {"type": "string", "maxLength": 300}, "text": {"type": "string",
         "maxLength": 300}}, "required": ["title", "text"]})",
     R"({"title": "What a rule costs", "text": "Some text that goes on for a while, with commas, and without an end."})"},
    {"schema: patterns", Kind::kJsonSchema,
     R"({"type": "object", "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "name": {"type":
         "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}}, "required": ["id", "name"]})",
     R"({"id": "ABC-1234", "name": "kubernetes-service-name"})"},
    {"schema: nested, references", Kind::kJsonSchema,
     R"({"$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "children": {"type": "array",
         "items": {"$ref": "#/$defs/node"}}}, "required": ["value", "children"], "additionalProperties": false}},
         "$ref": "#/$defs/node"})",
     R"({"value": 1.5, "children": [{"value": 2, "children": []}, {"value": -3, "children": []}]})"},
    {"regex: words and a number", Kind::kRegex, "([a-z]{1,50}-){1,50}[0-9]+", "some-thing-that-goes-on-and-on-123"},
    {"regex: two lines", Kind::kRegex, "[^\\n]{1,80}\\n[^\\n]{1,80}", "The quick brown fox jumps\nover the lazy dog"},
    {"regex: any text", Kind::kRegex, "(.|\\n)*", "The quick brown fox jumps over the lazy dog, and \"so on\".\n"},
    {"lark: a choice", Kind::kLark, "start: \"positive\" | \"negative\" | \"no opinion\"", "no opinion"},
    {"lark: arithmetic", Kind::kLark, "start: term ((\" + \" | \" - \") term)*\nterm: /[0-9]+/ | \"(\" start \")\"",
     "(1 + 2) - 44 + (3 - (4 + 5))"},
};

double NowUs() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// `sorted` must be sorted.
double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

std::string FromBase64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0, count = 0;
  for (const char c : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
    if ((count += 6) >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return bytes;
}

language::Vocabulary OfRanks(const char* path, int64_t specials) {
  language::Vocabulary v;
  std::ifstream file(path);
  auto ids = std::make_shared<std::unordered_map<std::string, TokenId>>();
  for (std::string token, rank; file >> token >> rank;) {
    v.tokens.push_back(FromBase64(token));
    ids->emplace(v.tokens.back(), static_cast<TokenId>(v.tokens.size() - 1));
  }
  v.special.assign(v.tokens.size(), false);
  for (int64_t i = 0; i < specials; ++i) {
    v.tokens.push_back(fmt::format("<special {}>", i));
    v.special.push_back(true);
  }
  v.size = static_cast<int64_t>(v.tokens.size());
  v.end_ids = {static_cast<TokenId>(v.size - 1)};
  v.encode = [ids](std::string_view text) {
    std::vector<TokenId> tokens;
    while (!text.empty()) {
      size_t length = std::min<size_t>(text.size(), 128);
      auto found = ids->find(std::string(text.substr(0, length)));
      while (found == ids->end()) found = ids->find(std::string(text.substr(0, --length)));
      tokens.push_back(found->second);
      text.remove_prefix(length);
    }
    return tokens;
  };
  return v;
}

// Resident memory of a process, and the CPU time of its finished children.
struct ProcessCost {
  double mib = 0, children_s = 0;
};

ProcessCost CostOf(pid_t process) {
  constexpr int kBeforeChildren = 15, kBeforeResident = 7;  // fields of /proc/PID/stat after the name
  ProcessCost cost;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string skipped;
  double user = 0, system = 0, pages = 0;
  for (int i = 3; i <= kBeforeChildren; ++i) fields >> skipped;
  fields >> user >> system;
  for (int i = 0; i < kBeforeResident - 1; ++i) fields >> skipped;
  fields >> pages;
  cost.children_s = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  cost.mib = pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  return cost;
}

int Fail(const Status& status) {
  fmt::print(stderr, "bench_grammar: {}\n", status.message());
  return 1;
}

int Main(int argc, char** argv) {
  setenv("TACTUS_GRAMMAR_HELPER", TACTUS_GRAMMAR_PROGRAM, 0);
  if (argc < 2) return Fail(InvalidArgument("bench_grammar MODEL, or RANKS and the number of special tokens"));
  engine::ModelText text;
  language::Vocabulary vocabulary;
  if (argc > 2) {
    vocabulary = OfRanks(argv[1], std::atoll(argv[2]));
  } else {
    const auto model = compute::DescribeModel(argv[1]);
    if (!model.ok()) return Fail(model.status());
    auto loaded = engine::LoadModelText(*model, {});
    if (!loaded.ok()) return Fail(loaded.status());
    text = std::move(loaded).value();
    vocabulary = engine::VocabularyOf(text.tokenizer.get(), model->config.vocab_size, model->config.stop_ids);
  }
  const auto encode = vocabulary.encode;
  const size_t words = static_cast<size_t>((vocabulary.size + 31) / 32);
  fmt::print("{} tokens\n", vocabulary.size);
  double from = NowUs();
  const auto engine = language::GrammarEngine::Create(std::move(vocabulary));
  if (!engine.ok()) return Fail(engine.status());
  fmt::print("vocabulary prepared in {:.0f} ms\n", (NowUs() - from) * 1e-3);
  from = NowUs();
  if (const auto first = (*engine)->Compile({Kind::kRegex, "first"}); !first.ok()) return Fail(first.status());
  fmt::print("first rule after {:.0f} ms more\n\n", (NowUs() - from) * 1e-3);
  int rules = 0;
  const double before_s = CostOf((*engine)->helper()).children_s;
  fmt::print("| rule | compile and first mask, ms | begin, us | masks | mean, us | p50 | p99 | forced |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  constexpr int kAnswers = 20;
  for (const Case& c : kCases) {
    std::vector<double> compile_us, begin_us, mask_us;
    std::vector<uint32_t> mask(words);
    std::vector<TokenId> forced;
    int64_t tokens = 0, tokens_forced = 0;
    for (int i = 0; i < kAnswers; ++i) {
      // A different text for the same rule each time, so that no compiled rule is reused.
      std::string rule = c.rule;
      for (int k = 0; k < i; ++k) rule = c.kind == Kind::kRegex ? "(?:" + rule + ")" : rule + "\n";
      from = NowUs();
      const auto grammar = (*engine)->Compile({c.kind, rule});
      if (!grammar.ok()) return Fail(grammar.status());
      compile_us.push_back(NowUs() - from);
      rules += c.kind != Kind::kJsonObject ? 1 : 0;
      from = NowUs();
      const auto state = (*grammar)->Start();
      begin_us.push_back(NowUs() - from);
      int32_t left_forced = 0;
      for (const TokenId token : encode(c.answer)) {
        if (left_forced == 0) {
          state->Forced(64, &forced);
          left_forced = static_cast<int32_t>(forced.size());
          tokens_forced += left_forced;
        }
        from = NowUs();
        if (!state->FillMask(mask)) return Fail(Internal("no mask"));
        mask_us.push_back(NowUs() - from);
        if (!state->Accept(token)) return Fail(Internal(fmt::format("{}: a token of the answer is refused", c.name)));
        ++tokens;
        left_forced = std::max(0, left_forced - 1);
      }
    }
    for (auto* values : {&compile_us, &begin_us, &mask_us}) std::sort(values->begin(), values->end());
    double sum = 0;
    for (const double us : mask_us) sum += us;
    fmt::print("| {} | {:.1f} | {:.0f} | {} | {:.1f} | {:.1f} | {:.1f} | {:.0f} % |\n", c.name,
               Quantile(compile_us, 0.5) * 1e-3, Quantile(begin_us, 0.5), mask_us.size(),
               sum / static_cast<double>(mask_us.size()), Quantile(mask_us, 0.5), Quantile(mask_us, 0.99),
               100.0 * static_cast<double>(tokens_forced) / static_cast<double>(tokens));
  }
  const ProcessCost helper = CostOf((*engine)->helper());
  fmt::print("\nthe helper has {:.0f} MiB; a trial takes {:.2f} ms of CPU time\n", helper.mib,
             1e3 * (helper.children_s - before_s) / std::max(1, rules));
  return 0;
}

}  // namespace
}  // namespace tactus

int main(int argc, char** argv) {
  return tactus::Main(argc, argv);
}
