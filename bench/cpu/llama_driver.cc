// A llama.cpp (or ik_llama.cpp) model behind the line protocol of bench/cpu/engines.py: one command per line on stdin,
// one JSON object per line on stdout. The calls are those of llama-batched-bench; a process of our own lets the engines
// take turns cell by cell with the weights loaded once. Compiled by setup.sh against each of the two, TACTUS_IK for the
// fork.
//
//   prefill tokens=N repeat=R             whole prompts on an empty cache
//   decode batch=B context=C steps=S      B sequences of C tokens of their own, one token each per step
//   hybrid chunk=N batch=B context=C steps=S   a prompt of N tokens of another sequence and those B decodes in one
//   batch
// Every answer: {"seconds": [...]} per prompt or step. Sampling is not included, as in llama-batched-bench.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

struct Settings {
  int threads = 2, repack = 1, ubatch = 512, sequences = 33, context = 1280;
};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Engine {
 public:
  bool Load(const char* path, const Settings& s) {
    llama_backend_init();
    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
#ifdef TACTUS_IK
    mp.repack_tensors = s.repack != 0;  // -rtr; llama.cpp repacks by itself
    if (mp.repack_tensors) mp.use_mmap = false;
#endif
    model_ = llama_model_load_from_file(path, mp);
    if (model_ == nullptr) return false;
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = static_cast<uint32_t>(s.sequences * s.context);
    cp.n_batch = 2048 + 64;
    cp.n_ubatch = static_cast<uint32_t>(s.ubatch);
    cp.n_seq_max = static_cast<uint32_t>(s.sequences);
    cp.n_threads = s.threads;
    cp.n_threads_batch = s.threads;
#ifdef TACTUS_IK
    cp.flash_attn = true;
#else
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.kv_unified = false;  // each sequence attends to its own cells only, which suits prompts that share nothing
    cp.no_perf = true;
#endif
    ctx_ = llama_init_from_model(model_, cp);
    if (ctx_ == nullptr) return false;
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_ = llama_batch_init(2048 + 64, 0, 1);
    chunk_sequence_ = s.sequences - 1;
    return true;
  }

  std::vector<double> Prefill(int tokens, int repeat) {
    std::vector<double> seconds;
    Forget();
    for (int r = 0; r < repeat; ++r) {
      Clear();
      batch_.n_tokens = 0;
      for (int i = 0; i < tokens; ++i) Add(i, 0, i == tokens - 1);
      seconds.push_back(Decode());
    }
    Clear();
    return seconds;
  }

  std::vector<double> Steps(int chunk, int batch, int context, int steps) {
    Contexts(batch, context);
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      batch_.n_tokens = 0;
      for (int s = 0; s < batch; ++s) Add(context + (chunk > 0 ? 0 : i), s, true);
      for (int t = 0; t < chunk; ++t) Add(t, chunk_sequence_, t == chunk - 1);
      seconds.push_back(Decode());
      if (chunk > 0) {
        Remove(chunk_sequence_, 0);
        for (int s = 0; s < batch; ++s) Remove(s, context);
      }
    }
    for (int s = 0; s < batch; ++s) Remove(s, context);
    return seconds;
  }

 private:
  void Add(int position, int sequence, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = 3 + std::rand() % (vocab_ - 3);
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = logits;
  }

  double Decode() {
    const double start = Now();
    if (llama_decode(ctx_, batch_) != 0) {
      std::fprintf(stderr, "llama_driver: llama_decode failed at %d tokens\n", batch_.n_tokens);
      std::exit(1);
    }
    llama_synchronize(ctx_);
    return Now() - start;
  }

  // Sequences [0, batch) hold `context` tokens each: one is computed, the others get copies of its state in cells of
  // their own. A larger set of the same context is cut down; its last cells were those of the last sequences.
  void Contexts(int batch, int context) {
    if (context_ == context && batch_size_ >= batch) {
      for (int s = batch; s < batch_size_; ++s) Remove(s, 0);
      batch_size_ = batch;
      return;
    }
    Clear();
    batch_.n_tokens = 0;
    for (int i = 0; i < context; ++i) Add(i, 0, i == context - 1);
    Decode();
#ifdef TACTUS_IK
    std::vector<uint8_t> state(llama_state_seq_get_size(ctx_, 0, 0));
    llama_state_seq_get_data(ctx_, state.data(), state.size(), 0, 0);
    for (int s = 1; s < batch; ++s) llama_state_seq_set_data(ctx_, state.data(), state.size(), s, 0);
#else
    std::vector<uint8_t> state(llama_state_seq_get_size(ctx_, 0));
    llama_state_seq_get_data(ctx_, state.data(), state.size(), 0);
    for (int s = 1; s < batch; ++s) llama_state_seq_set_data(ctx_, state.data(), state.size(), s);
#endif
    context_ = context;
    batch_size_ = batch;
  }

  void Forget() { context_ = batch_size_ = -1; }

  void Clear() {
    Forget();
#ifdef TACTUS_IK
    llama_kv_cache_clear(ctx_);
#else
    llama_memory_clear(llama_get_memory(ctx_), false);
#endif
  }

  void Remove(int sequence, int from) {
#ifdef TACTUS_IK
    llama_kv_cache_seq_rm(ctx_, sequence, from, -1);
#else
    llama_memory_seq_rm(llama_get_memory(ctx_), sequence, from, -1);
#endif
  }

  llama_model* model_ = nullptr;
  llama_context* ctx_ = nullptr;
  llama_batch batch_{};
  int vocab_ = 0, context_ = -1, batch_size_ = -1, chunk_sequence_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: llama_driver MODEL.gguf [threads [repack [ubatch [sequences [context]]]]]\n");
    return 2;
  }
  Settings settings;
  int* const fields[] = {&settings.threads, &settings.repack, &settings.ubatch, &settings.sequences, &settings.context};
  for (int i = 2; i < argc && i < 7; ++i) *fields[i - 2] = std::atoi(argv[i]);
  Engine engine;
  const double start = Now();
  if (!engine.Load(argv[1], settings)) {
    std::fprintf(stderr, "llama_driver: cannot load %s\n", argv[1]);
    return 1;
  }
  std::printf("{\"ready\": true, \"load_seconds\": %.3f}\n", Now() - start);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string op, word;
    in >> op;
    std::map<std::string, int> arg;
    while (in >> word) {
      const size_t at = word.find('=');
      if (at != std::string::npos) arg[word.substr(0, at)] = std::atoi(word.c_str() + at + 1);
    }
    std::vector<double> seconds;
    if (op == "prefill") {
      seconds = engine.Prefill(arg["tokens"], arg["repeat"]);
    } else if (op == "decode" || op == "hybrid") {
      seconds = engine.Steps(op == "hybrid" ? arg["chunk"] : 0, arg["batch"], arg["context"], arg["steps"]);
    } else {
      std::printf("{\"error\": \"unknown command\"}\n");
      std::fflush(stdout);
      continue;
    }
    std::printf("{\"seconds\": [");
    for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.6f", i == 0 ? "" : ", ", seconds[i]);
    std::printf("]}\n");
    std::fflush(stdout);
  }
  return 0;
}
