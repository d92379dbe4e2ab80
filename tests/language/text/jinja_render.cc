// Renders a chat template for the comparison with Python's jinja2 (tools/check_templates.py); not a test itself.
//   jinja_render TEMPLATE CASES.jsonl NOW_SECONDS
// One JSON object of variables per line in, one {"text": ...} or {"error": ...} per line out.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "base/json.h"
#include "language/text/chat_template.h"

namespace {

using tactus::Json;

void Print(const char* key, const std::string& text) {
  Json line = Json::object();
  line[key] = text;
  std::cout << line.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n";
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: jinja_render TEMPLATE CASES.jsonl NOW_SECONDS\n";
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto compiled = tactus::language::ChatTemplate::Compile(source, std::atoll(argv[3]));
  std::ifstream cases(argv[2]);
  for (std::string line; std::getline(cases, line);) {
    if (!compiled.ok()) {
      Print("error", "compile: " + compiled.status().message());
      continue;
    }
    const auto variables = Json::parse(line, nullptr, false);
    const auto text = compiled.value()->Render(variables);
    text.ok() ? Print("text", *text) : Print("error", text.status().message());
  }
  return 0;
}
