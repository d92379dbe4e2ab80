// The record of a card's results (results/h200.txt, README.md), by name, for tests of an emulator.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "inputs.h"

namespace conformance {

struct Case {
  std::string line;  // all of it
  size_t words = 0;
  uint64_t hash = 0;  // of all words; of `all` cases the sum
  Words out;          // those that the record shows

  // The value of ` key=`; empty: there is none.
  std::string Field(const std::string& key) const {
    const size_t at = line.find(" " + key + "=");
    if (at == std::string::npos) return "";
    const size_t from = at + key.size() + 2;
    return line.substr(from, line.find(' ', from) - from);
  }
};

// Every `case` and `all` line of a record; the latter's names begin with "all ". Further cases of a name are NAME#1 ...
inline std::map<std::string, Case> ReadRecord(const std::string& path) {
  std::map<std::string, Case> cases;
  std::ifstream file(path);
  Case c;
  while (std::getline(file, c.line)) {
    std::istringstream words(c.line);
    std::string kind, name;
    words >> kind >> name;
    if (kind != "case" && kind != "all") continue;
    const std::string count = c.Field("n"), hash = c.Field(kind == "all" ? "sum" : "hash");
    c.words = count.empty() ? 0 : std::stoul(count);
    c.hash = hash.empty() ? 0 : std::stoull(hash, nullptr, 16);
    c.out.clear();
    std::istringstream out(c.Field("out"));
    for (std::string word; std::getline(out, word, ',') && word != "..";) {
      if (!word.empty()) c.out.push_back(uint32_t(std::stoul(word, nullptr, 16)));
    }
    if (kind == "all") name = "all " + name;
    const std::string first = name;
    for (int more = 1; cases.count(name) != 0; ++more) name = first + "#" + std::to_string(more);
    cases[name] = c;
  }
  return cases;
}

}  // namespace conformance
