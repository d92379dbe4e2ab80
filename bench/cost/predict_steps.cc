// Step times for the comparisons of bench/validate: reads steps on stdin, one per line, and prints the milliseconds of
//   each. predict_steps MODEL DEVICE [--tp N] [--pp N] [--source S] [--backend B] [--cpu-overhead-us X] [--weights D]
//   [--kv D] [--describe] A line is "chunk:context[,chunk:context...] decodes decode_context_tokens logit_rows"; "-"
//   for no chunk.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cost/cost_model.h"

namespace {

bool ParseChunks(const std::string& text, std::vector<tactus::ChunkShape>* chunks) {
  chunks->clear();
  if (text == "-") return true;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    tactus::ChunkShape c;
    if (std::sscanf(item.c_str(), "%d:%d", &c.tokens, &c.context_tokens) != 2) return false;
    chunks->push_back(c);
  }
  return !chunks->empty();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: predict_steps MODEL DEVICE [--tp N] [--pp N] [--source S] [--backend B] [--cpu-overhead-us X] "
                 "[--weights D] [--kv D]\n");
    return 2;
  }
  tactus::cost::Deployment d;
  d.model = argv[1];
  d.device = argv[2];
  bool describe = false;
  for (int i = 3; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--describe") {
      describe = true;
      continue;
    }
    if (++i == argc) return 2;
    if (flag == "--tp")
      d.tp = std::atoi(argv[i]);
    else if (flag == "--pp")
      d.pp = std::atoi(argv[i]);
    else if (flag == "--source")
      d.source = argv[i];
    else if (flag == "--backend")
      d.backend = argv[i];
    else if (flag == "--cpu-overhead-us")
      d.cpu_overhead_ns = static_cast<int64_t>(std::atof(argv[i]) * 1e3);
    else if (flag == "--weights")
      d.weight_dtype = argv[i];
    else if (flag == "--kv")
      d.kv_dtype = argv[i];
    else
      return 2;
  }
  auto model = tactus::cost::CostModel::Create(d);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().message().c_str());
    return 1;
  }
  if (describe) std::fprintf(stderr, "%s\n", (*model)->Describe().c_str());
  std::vector<tactus::ChunkShape> chunks;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string text;
    tactus::StepShape s;
    if (!(in >> text >> s.decodes >> s.decode_context_tokens >> s.logit_rows) || !ParseChunks(text, &chunks)) {
      std::fprintf(stderr, "not a step: %s\n", line.c_str());
      return 1;
    }
    s.chunks = chunks;
    std::printf("%.6f\n", static_cast<double>((*model)->StepTimeNs(s)) / 1e6);
  }
  return 0;
}
