// A llama.cpp (or ik_llama.cpp) model behind the line protocol of bench/cpu/engines.py: one command per line on stdin,
// one JSON object per line on stdout. The calls are those of llama-batched-bench; our own process lets the engines take
// turns cell by cell with the weights loaded once. Compiled by setup.sh against each of the two, TACTUS_IK for the
// fork.
//
//   prefill tokens=N repeat=R [box=T]     whole prompts on an empty cache; an error after T seconds decode batch=B
//   context=C steps=S      B sequences with separate contexts of C tokens, one token each per step hybrid chunk=N
//   batch=B context=C steps=S   a prompt of N tokens of another sequence and those B decodes in one batch
// Every answer: {"seconds": [...]} per prompt or step. Sampling is not included, as in llama-batched-bench.
#include <algorithm>
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
  int threads = 2, repack = 1, ubatch = 512, sequences = 33, context = 1280, unified = 0;
};

constexpr int kChunk = 2048;  // prompt tokens per call; leaves room for 64 decodes

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
    cp.n_batch = kChunk + 64;
    cp.n_ubatch = static_cast<uint32_t>(s.ubatch);
    cp.n_seq_max = static_cast<uint32_t>(s.sequences);
    cp.n_threads = s.threads;
    cp.n_threads_batch = s.threads;
#ifdef TACTUS_IK
    cp.flash_attn = true;
#else
    cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    cp.kv_unified =
        s.unified != 0;  // 0: each sequence attends only to its own cells, for prompts without shared prefixes
    cp.no_perf = true;
#endif
    ctx_ = llama_init_from_model(model_, cp);
    if (ctx_ == nullptr) return false;
    vocab_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    batch_ = llama_batch_init(kChunk + 64, 0, 1);
    chunk_sequence_ = s.sequences - 1;
    unified_ = s.unified != 0;
    return true;
  }

  // `error`: how far a prompt came that took longer than `box_s` (0: no limit). The last prompt stays in the cache: a
  // context that Contexts need not compute again.
  std::vector<double> Prefill(int tokens, int repeat, double box_s, std::string* error) {
    std::vector<double> seconds;
    for (int r = 0; r < repeat; ++r) {
      Clear();
      double total = 0;
      for (int done = 0; done < tokens;) {
        const int count = std::min(kChunk, tokens - done);
        total += Prompt(done, count, done + count == tokens);
        done += count;
        if (box_s > 0 && total > box_s && done < tokens) {
          Clear();
          *error =
              std::to_string(done) + " of " + std::to_string(tokens) + " tokens took " + std::to_string(total) + " s";
          return {};
        }
      }
      seconds.push_back(total);
    }
    context_ = tokens;
    batch_size_ = 1;
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

  // Seconds for tokens [from, from + count) of sequence 0.
  double Prompt(int from, int count, bool last) {
    batch_.n_tokens = 0;
    for (int i = from; i < from + count; ++i) Add(i, 0, last && i == from + count - 1);
    return Decode();
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

  // Sequences [0, batch) get `context` tokens each: one is computed, the others get copies of its state in separate
  // cells. A larger set with the same context is reduced; its last cells belong to the last sequences. In a unified
  // cache a long context consists of copies of its first tokens, moved to their positions.
  void Contexts(int batch, int context) {
    if (context_ == context && batch_size_ >= batch) {
      for (int s = batch; s < batch_size_; ++s) Remove(s, 0);
      batch_size_ = batch;
      return;
    }
    if (context_ != context) {
      Clear();
      const int computed = unified_ ? std::min(context, kChunk) : context;
      for (int done = 0; done < computed; done += kChunk) Prompt(done, std::min(kChunk, computed - done), false);
      if (computed < context) Extend(computed, context);
      batch_size_ = 1;
    }
    const std::vector<uint8_t> state = State();
    for (int s = batch_size_; s < batch; ++s) Restore(state, s);
    context_ = context;
    batch_size_ = batch;
  }

  // Extends sequence 0 from `computed` to `context` tokens. The last sequence is used for the copies.
  void Extend(int computed, int context) {
    const std::vector<uint8_t> state = State();
    for (int at = computed; at < context; at += computed) {
      Restore(state, chunk_sequence_);
      if (context - at < computed) Remove(chunk_sequence_, context - at);
#ifdef TACTUS_IK
      llama_kv_cache_seq_add(ctx_, chunk_sequence_, 0, -1, at);
      llama_kv_cache_seq_cp(ctx_, chunk_sequence_, 0, 0, -1);
#else
      llama_memory_t memory = llama_get_memory(ctx_);
      llama_memory_seq_add(memory, chunk_sequence_, 0, -1, at);
      llama_memory_seq_cp(memory, chunk_sequence_, 0, 0, -1);
#endif
      Remove(chunk_sequence_, 0);
    }
  }

#ifdef TACTUS_IK
  std::vector<uint8_t> State() {
    std::vector<uint8_t> state(llama_state_seq_get_size(ctx_, 0, 0));
    llama_state_seq_get_data(ctx_, state.data(), state.size(), 0, 0);
    return state;
  }
  void Restore(const std::vector<uint8_t>& state, int s) {
    Must(llama_state_seq_set_data(ctx_, state.data(), state.size(), s, 0));
  }
#else
  std::vector<uint8_t> State() {
    std::vector<uint8_t> state(llama_state_seq_get_size(ctx_, 0));
    llama_state_seq_get_data(ctx_, state.data(), state.size(), 0);
    return state;
  }
  void Restore(const std::vector<uint8_t>& state, int s) {
    Must(llama_state_seq_set_data(ctx_, state.data(), state.size(), s));
  }
#endif

  static void Must(size_t bytes) {
    if (bytes != 0) return;
    std::fprintf(stderr, "llama_driver: a sequence's state did not fit\n");
    std::exit(1);
  }

  void Clear() {
    context_ = batch_size_ = -1;
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
  bool unified_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: llama_driver MODEL.gguf [threads [repack [ubatch [sequences [context [unified]]]]]]\n");
    return 2;
  }
  Settings settings;
  int* const fields[] = {&settings.threads,   &settings.repack,  &settings.ubatch,
                         &settings.sequences, &settings.context, &settings.unified};
  for (int i = 2; i < argc && i < 8; ++i) *fields[i - 2] = std::atoi(argv[i]);
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
    std::string error;
    if (op == "prefill") {
      seconds = engine.Prefill(arg["tokens"], arg["repeat"], arg["box"], &error);
    } else if (op == "decode" || op == "hybrid") {
      seconds = engine.Steps(op == "hybrid" ? arg["chunk"] : 0, arg["batch"], arg["context"], arg["steps"]);
    } else {
      error = "unknown command";
    }
    if (!error.empty()) {
      std::printf("{\"error\": \"%s\"}\n", error.c_str());
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
