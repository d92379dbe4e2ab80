// The options that --help lists of commands with many (CommandLine::Common).
#pragma once

#include <string>
#include <vector>

namespace tactus::cli {

// The options of an engine that --help of a command lists, and the command's own.
inline std::vector<std::string> EngineCommon(std::vector<std::string> own) {
  own.insert(own.end(), {"quantization", "dtype", "weight-cache", "chat-template", "draft-model", "scheduler",
                         "token-budget", "tbt-slo", "max-num-seqs", "max-model-len", "prefix-caching",
                         "kv-cache-memory", "kv-cache-dir", "speculation", "device", "threads"});
  return own;
}
// The same of a simulation.
inline std::vector<std::string> SimCommon(std::vector<std::string> own) {
  own.insert(own.end(), {"model",
                         "device",
                         "tensor-parallel-size",
                         "pipeline-parallel-size",
                         "replicas",
                         "balancer",
                         "scheduler",
                         "token-budget",
                         "tbt-slo",
                         "max-num-seqs",
                         "max-model-len",
                         "kv-blocks",
                         "prefix-caching",
                         "workload",
                         "data",
                         "rate",
                         "concurrency",
                         "requests",
                         "seed",
                         "slo",
                         "slo-mix",
                         "warmup",
                         "measure",
                         "seeds",
                         "json",
                         "output"});
  return own;
}

}  // namespace tactus::cli
