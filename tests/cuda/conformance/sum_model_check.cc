// Compares sum_model.h with a record of instructions.cu: `sum_model_check RECORD`. It needs no card and no CUDA.
#include "sum_model.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

namespace {

using conformance::Format;
using conformance::Product;
using conformance::Profile;
using conformance::SumRule;
using conformance::Tile;
using conformance::Words;

struct Instruction {
  Tile tile;
  SumRule rule;
  uint64_t seed;
};

SumRule Rule(Format a, Format b, Format sum, int kept, bool nearest, bool two) {
  return {a, b, sum, kept, kept == 13 ? 13 : 23, nearest, two};
}

const std::map<std::string, Instruction>& Instructions() {
  using namespace conformance;
  static const std::map<std::string, Instruction> all{
      {"mma.m16n8k8.f32.bf16", {{8, 2}, Rule(kBf16, kBf16, kF32, 25, false, false), 200}},
      {"mma.m16n8k16.f32.bf16", {{16, 2}, Rule(kBf16, kBf16, kF32, 25, false, false), 210}},
      {"mma.m16n8k8.f32.f16", {{8, 2}, Rule(kF16, kF16, kF32, 25, false, false), 220}},
      {"mma.m16n8k16.f32.f16", {{16, 2}, Rule(kF16, kF16, kF32, 25, false, false), 230}},
      {"mma.m16n8k8.f16.f16", {{8, 2}, Rule(kF16, kF16, kF16, 25, true, false), 240}},
      {"mma.m16n8k16.f16.f16", {{16, 2}, Rule(kF16, kF16, kF16, 25, true, false), 250}},
      {"mma.m16n8k4.f32.tf32", {{4, 1}, Rule(kTf32, kTf32, kF32, 25, false, false), 260}},
      {"mma.m16n8k8.f32.tf32", {{8, 1}, Rule(kTf32, kTf32, kF32, 25, false, false), 270}},
      {"mma.m16n8k32.f32.e4m3.e4m3", {{32, 4}, Rule(kE4m3, kE4m3, kF32, 25, false, true), 400}},
      {"mma.m16n8k32.f32.e5m2.e5m2", {{32, 4}, Rule(kE5m2, kE5m2, kF32, 25, false, true), 410}},
      {"mma.m16n8k32.f32.e4m3.e5m2", {{32, 4}, Rule(kE4m3, kE5m2, kF32, 25, false, true), 420}},
      {"mma.m16n8k32.f32.e5m2.e4m3", {{32, 4}, Rule(kE5m2, kE4m3, kF32, 25, false, true), 430}},
      {"wgmma.m64n8k16.f32.bf16", {{16, 2}, Rule(kBf16, kBf16, kF32, 25, false, false), 500}},
      {"wgmma.m64n8k16.f32.f16", {{16, 2}, Rule(kF16, kF16, kF32, 25, false, false), 510}},
      {"wgmma.m64n8k8.f32.tf32", {{8, 1}, Rule(kTf32, kTf32, kF32, 25, false, false), 520}},
      {"wgmma.m64n8k32.f32.e4m3", {{32, 4}, Rule(kE4m3, kE4m3, kF32, 13, false, false), 530}},
      {"wgmma.m64n8k32.f32.e5m2", {{32, 4}, Rule(kE5m2, kE5m2, kF32, 13, false, false), 540}}};
  return all;
}

// Products of bytes are exact. Their sum wraps, or with satfinite stops at the ends of int32.
struct IntegerInstruction {
  Tile tile;
  bool a_signed, b_signed, saturates;
  uint64_t seed;
};
const std::map<std::string, IntegerInstruction>& IntegerInstructions() {
  static const std::map<std::string, IntegerInstruction> all{
      {"mma.m16n8k16.s32.s8.s8", {{16, 4}, true, true, false, 300}},
      {"mma.m16n8k32.s32.s8.s8", {{32, 4}, true, true, false, 301}},
      {"mma.m16n8k32.s32.u8.u8", {{32, 4}, false, false, false, 302}},
      {"mma.m16n8k32.s32.s8.u8", {{32, 4}, true, false, false, 303}},
      {"mma.m16n8k32.s32.u8.s8", {{32, 4}, false, true, false, 304}},
      {"mma.m16n8k32.satfinite.s32.s8.s8", {{32, 4}, true, true, true, 305}},
      {"wgmma.m64n8k32.s32.s8", {{32, 4}, true, true, false, 550}}};
  return all;
}

Words ModelRegisters(const IntegerInstruction& instruction, Product& p) {
  const auto byte = [](uint32_t v, bool is_signed) { return is_signed ? int64_t(int8_t(v)) : int64_t(v); };
  Product result(p.tile, p.in_a, p.in_b, p.sum);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      int64_t sum = int32_t(p.C(m, n));
      for (int k = 0; k < p.tile.k; ++k) {
        sum += byte(p.A(m, k), instruction.a_signed) * byte(p.B(k, n), instruction.b_signed);
      }
      if (instruction.saturates) sum = std::max<int64_t>(INT32_MIN, std::min<int64_t>(INT32_MAX, sum));
      result.C(m, n) = uint32_t(sum);
    }
  }
  return result.CRegisters();
}

// The registers of all lanes, in the record's order.
Words ModelRegisters(const Instruction& instruction, Product& p) {
  std::vector<uint32_t> column(size_t(p.tile.k));
  Product result(p.tile, p.in_a, p.in_b, p.sum);
  for (int n = 0; n < 8; ++n) {
    for (int k = 0; k < p.tile.k; ++k) column[size_t(k)] = p.B(k, n);
    for (int m = 0; m < 16; ++m) {
      result.C(m, n) = conformance::DotOf(instruction.rule, &p.A(m, 0), column.data(), p.tile.k, p.C(m, n));
    }
  }
  return result.CRegisters();
}

std::string Field(const std::string& line, const std::string& key) {
  const size_t at = line.find(" " + key + "=");
  if (at == std::string::npos) return "";
  const size_t from = at + key.size() + 2;
  return line.substr(from, line.find(' ', from) - from);
}

std::string Hex(uint32_t v) {
  char text[12];
  std::snprintf(text, sizeof text, "%x", v);
  return text;
}

uint32_t Number(const std::string& text, int base) {
  return uint32_t(std::stoul(text, nullptr, base));
}

std::string HashOf(const Words& words) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, conformance::Hash(words.data(), words.size()));
  return text;
}

constexpr int kProducts = 64;

Words ModelProducts(const Instruction& instruction, Profile profile) {
  const SumRule& rule = instruction.rule;
  conformance::Rng rng(instruction.seed + uint64_t(profile));
  Words all;
  for (int i = 0; i < kProducts; ++i) {
    Product p = conformance::RandomProduct(rng, instruction.tile, rule.in_a, rule.in_b, rule.sum, profile);
    for (uint32_t w : ModelRegisters(instruction, p)) all.push_back(w);
  }
  return all;
}

// `ends`: the sums start near both ends of int32.
Words ModelProducts(const IntegerInstruction& instruction, bool ends) {
  using namespace conformance;
  Rng rng(instruction.seed + (ends ? 10 : 0));
  Words all;
  for (int i = 0; i < kProducts; ++i) {
    Product p = RandomProduct(rng, instruction.tile, kInt8, kInt8, kInt32, Profile::kBits);
    for (uint32_t& c : p.c) {
      if (ends) c = (c & 1) != 0 ? 0x80000000u + (c >> 16) : 0x7fffffffu - (c >> 16);
    }
    for (uint32_t w : ModelRegisters(instruction, p)) all.push_back(w);
  }
  return all;
}

// The dot product of a record's line; its terms are FROM[-TO]:A*B,...
uint32_t ModelDot(const Instruction& instruction, const std::string& line) {
  std::vector<uint32_t> a(size_t(instruction.tile.k)), b(a.size());
  std::istringstream terms(Field(line, "terms"));
  for (std::string term; std::getline(terms, term, ',');) {
    if (term == "none") continue;
    const size_t colon = term.find(':'), star = term.find('*'), dash = term.find('-');
    const size_t from = Number(term, 10), to = dash < colon ? Number(term.substr(dash + 1), 10) : from;
    for (size_t k = from; k <= to; ++k) {
      a[k] = Number(term.substr(colon + 1), 16);
      b[k] = Number(term.substr(star + 1), 16);
    }
  }
  return conformance::DotOf(instruction.rule, a.data(), b.data(), instruction.tile.k, Number(Field(line, "c"), 16));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: sum_model_check RECORD\n";
    return 2;
  }
  std::ifstream record(argv[1]);
  int compared = 0, differ = 0;
  for (std::string line; std::getline(record, line);) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    if (kind != "case") continue;
    const size_t slash = name.find('/');
    const std::string instruction = name.substr(0, slash);
    const auto floats = Instructions().find(instruction);
    const auto integers = IntegerInstructions().find(instruction);
    std::string recorded, model;
    if (floats != Instructions().end() && !Field(line, "terms").empty()) {
      recorded = Field(line, "out");
      model = Hex(ModelDot(floats->second, line));
    } else if (floats != Instructions().end() && !Field(line, "seed").empty()) {
      for (int p = 0; p < 5; ++p) {
        if (name.substr(slash + 1) == conformance::Name(Profile(p)))
          model = HashOf(ModelProducts(floats->second, Profile(p)));
      }
      recorded = Field(line, "hash");
    } else if (integers != IntegerInstructions().end()) {
      recorded = Field(line, "hash");
      model = HashOf(ModelProducts(integers->second, name.substr(slash + 1) == "ends"));
    } else {
      continue;
    }
    ++compared;
    if (model == recorded) continue;
    ++differ;
    std::printf("%s: recorded %s, the model has %s\n", name.c_str(), recorded.c_str(), model.c_str());
  }
  std::printf("%d cases compared, %d differ\n", compared, differ);
  return compared == 0 || differ != 0;
}
