// The contract of executors (base/executor.h, base/step.h) as checks that run over any executor. A new backend
// registers itself with one call (docs/how-to/extending.md, "A backend"). The checks compare an executor with itself: a
// sequence must get the tokens and logprobs that it gets alone, under any schedule. Golden tests check that the tokens
// are the model's.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/backend.h"
#include "base/executor.h"

namespace tactus::contract {

struct Backend {
  std::string name;  // of the test suite: letters and digits
  // Makes an executor of a tiny model, with exactly these limits.
  std::function<Result<std::unique_ptr<Executor>>(const ExecutorSize& size, int32_t max_in_flight)> make;
  int32_t vocab_size = 0;   // of the model; at least 64
  int32_t block_size = 16;  // tokens; at least 8

  // What it offers. The contract is checked for all that it offers; plans that need anything else must be refused. Most
  // wrong descriptions fail a check: TraitsAreThoseOfItsBackend (chains, drafts, moves) or WhatIsNotOfferedIsRefused
  // (logprobs, grammars). Swaps that are offered but not described here fail none.
  bool chains = false;    // an input may be the token of the slot's previous item (ExecutorTraits::can_chain)
  bool drafts = false;    // verifies drafts
  bool logprobs = false;  // of outputs and of prompts
  bool grammars = false;
  bool swaps = false;  // to blocks of the host
  bool moves = false;  // KV blocks as bytes (Executor::kv_block_bytes), into blocks of the host; needs `swaps`
};

// Something that a backend may offer.
using Capability = bool Backend::*;

struct Check {
  const char* name;
  void (*run)(const Backend&);  // reports failures to GoogleTest
  Capability needs = nullptr;   // the check is for backends that offer this; null: for all
};
std::span<const Check> Checks();

// Adds a test `<name>Contract.<check>` for every check of what `backend` offers. For the initialiser of a global
// variable: tests are added before main.
bool Register(Backend backend);

}  // namespace tactus::contract
