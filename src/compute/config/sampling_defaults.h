// How answers are sampled where requests do not say: each value by the command line, else by the model's files, else as
// is usual for chats. Pure functions.
#pragma once

#include <string>

#include "tactus/request.h"
#include "tactus/sampling_options.h"

namespace tactus::compute {

// What chats are sampled with elsewhere where nothing is stated (docs/api.md says whose values these are, and why).
// Penalties are off.
inline constexpr double kUsualTemperature = 0.8, kUsualTopP = 0.95, kUsualMinP = 0.05;
inline constexpr int64_t kUsualTopK = 40;

// What is stated replaces what is there.
void ApplySampling(const StatedSampling& stated, SamplingParams* sampling);

SamplingParams DefaultSampling(const StatedSampling& flags, const StatedSampling& model);

// "temperature 0.6 (generation_config.json), top_p 0.95, top_k 40, min_p 0.05 (built in)": those, and where each comes
// from. Penalties are left out where they are off. `model_source`: what the model's values are read from.
std::string DefaultSamplingText(const StatedSampling& flags, const StatedSampling& model,
                                const std::string& model_source);

// Of a model's file; a request may have less (docs/api.md).
inline constexpr double kMaxModelTemperature = 100.0;

// A value that a model's file states, as this build takes it: top_k of -1 or less is 0 (all), a top_p of 0 the least
// that there is (the likeliest token alone), both as where the files come from. False: out of range.
bool TakeTopK(double value, StatedSampling* to);
bool TakeTopP(double value, StatedSampling* to);

}  // namespace tactus::compute
