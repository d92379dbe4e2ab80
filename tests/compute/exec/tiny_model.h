// The golden tiny models in runnable form, for tests of the executor.
#pragma once

#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "compute/exec/numerics.h"
#include "compute/exec/step_runner.h"
#include "compute/model/loader.h"
#include "support/source_path.h"
#include "support/step_driver.h"

namespace tactus::test {

struct TinyModel {
  compute::ModelConfig config;
  compute::CpuWeights weights;
  compute::Numerics numerics;

  compute::CpuExecutorOptions Options() const {
    compute::CpuExecutorOptions o;
    o.clock = &SystemClock();
    o.threads = 1;
    o.kv_dtype = numerics.kv_dtype;
    o.num_blocks = 128;
    o.max_slots = 8;
    o.max_step_tokens = 256;
    o.max_step_items = 8;
    o.max_model_len = 160;
    o.clock = &SystemClock();
    return o;
  }
};

// `path`: of a model.
inline TinyModel LoadModel(const std::string& path, const compute::NumericsOptions& numerics) {
  auto description = compute::DescribeModel(path);
  TACTUS_CHECK_MSG(description.ok(), description.status().ToString());
  TinyModel m;
  m.config = description->config;
  m.numerics = *compute::ChooseNumerics(numerics, m.config.weight_dtype);
  auto weights = compute::LoadWeights(*description, compute::LoadOptionsFor(m.numerics), SystemClock());
  TACTUS_CHECK_MSG(weights.ok(), weights.status().ToString());
  m.weights = *weights;
  return m;
}

inline TinyModel LoadTiny(const std::string& name, const compute::NumericsOptions& numerics) {
  return LoadModel(test::SourcePath("tests/golden/data/") + name, numerics);
}

inline TinyModel LoadTiny(const std::string& name, const char* dtype = "auto") {
  return LoadTiny(name, compute::NumericsOptions{.dtype = dtype});
}

}  // namespace tactus::test
