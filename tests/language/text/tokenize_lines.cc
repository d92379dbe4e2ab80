// Reads one JSON string per line and writes one JSON array of ids per line (with --decode: arrays in, strings out), for
// tools/compare_tokenizers.py. Usage: tokenize_lines json|spm|tekken|gguf-fields FILE [--decode] [--no-special] [--bos]
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/json.h"
#include "gguf_fields.h"
#include "language/text/tokenizer.h"

int main(int argc, char** argv) {
  using namespace tactus;
  using namespace tactus::language;
  if (argc < 3) {
    std::cerr << "usage: tokenize_lines json|spm|tekken|gguf-fields FILE [--decode] [--no-special] [--bos]\n";
    return 2;
  }
  const std::string kind = argv[1];
  std::ostringstream file;
  file << std::ifstream(argv[2], std::ios::binary).rdbuf();
  bool decode = false, parse_special = true, bos = false;
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    decode |= flag == "--decode";
    bos |= flag == "--bos";
    if (flag == "--no-special") parse_special = false;
  }
  Result<TokenizerSpec> spec = kind == "json"     ? ParseTokenizerJson(file.str())
                               : kind == "spm"    ? ParseSentencePieceModel(file.str())
                               : kind == "tekken" ? ParseTekkenJson(file.str())
                                                  : SpecFromGguf(GgufFieldsFromJson(SortedJson::parse(file.str())));
  if (!spec.ok()) {
    std::cerr << spec.status().ToString() << "\n";
    return 1;
  }
  const Result<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(std::move(*spec));
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().ToString() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const SortedJson input = SortedJson::parse(line);
    if (!decode) {
      std::cout << SortedJson((*tokenizer)->Encode(input.get<std::string>(), bos, parse_special)).dump() << "\n";
      continue;
    }
    const auto ids = input.get<std::vector<TokenId>>();
    const std::string text = (*tokenizer)->Decode(ids, bos);
    Detokenizer detokenizer(tokenizer->get(), bos);
    std::string streamed;
    for (const TokenId id : ids) streamed += detokenizer.Append(id);
    if (streamed + detokenizer.Flush() != text) std::cerr << "streamed text differs: " << line << "\n";
    std::cout << SortedJson(text).dump() << "\n";
  }
  return 0;
}
