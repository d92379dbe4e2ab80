// Sampling defaults for requests that state none. Each value comes from the command line, else from the model's files,
// else from the built-in chat defaults. Pure functions.
#pragma once

#include <string>

#include "tactus/request.h"
#include "tactus/sampling_options.h"

namespace tactus::compute {

// Built-in chat defaults, as other servers use them (docs/reference/api.md gives the sources and reasons). Penalties
// are off.
inline constexpr double kUsualTemperature = 0.8, kUsualTopP = 0.95, kUsualMinP = 0.05;
inline constexpr int64_t kUsualTopK = 40;

// Stated values replace those in `sampling`.
void ApplySampling(const StatedSampling& stated, SamplingParams* sampling);

SamplingParams DefaultSampling(const StatedSampling& flags, const StatedSampling& model);

// The values and their sources, such as "temperature 0.6 (generation_config.json), top_p 0.95, top_k 40, min_p 0.05
// (built in)". Penalties that are off are left out. `model_source`: the file of the model's values.
std::string DefaultSamplingText(const StatedSampling& flags, const StatedSampling& model,
                                const std::string& model_source);

// Largest temperature in a model's file; the limit for requests is lower (docs/reference/api.md).
inline constexpr double kMaxModelTemperature = 100.0;

// Converts a value from a model's file, as transformers interprets it: top_k <= -1 becomes 0 (all tokens); top_p 0
// becomes the smallest positive value (the likeliest token alone). False: out of range.
bool TakeTopK(double value, StatedSampling* to);
bool TakeTopP(double value, StatedSampling* to);

}  // namespace tactus::compute
