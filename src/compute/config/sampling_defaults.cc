#include "compute/config/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tactus::compute {
namespace {

struct Value {
  const char* name;
  double value;
  enum class From : uint8_t { kFlag, kModel, kBuiltIn } from;
  bool off;  // value without effect, not stated by any source
};

template <class T>
Value Chosen(const char* name, const std::optional<T>& flag, const std::optional<T>& model, T usual,
             bool usual_is_off) {
  if (flag) return {name, static_cast<double>(*flag), Value::From::kFlag, false};
  if (model) return {name, static_cast<double>(*model), Value::From::kModel, false};
  return {name, static_cast<double>(usual), Value::From::kBuiltIn, usual_is_off};
}

}  // namespace

void ApplySampling(const StatedSampling& stated, SamplingParams* s) {
  const auto take = [](const std::optional<double>& value, float* to) {
    if (value) *to = static_cast<float>(*value);
  };
  take(stated.temperature, &s->temperature);
  take(stated.top_p, &s->top_p);
  take(stated.min_p, &s->min_p);
  take(stated.repetition_penalty, &s->repetition_penalty);
  take(stated.presence_penalty, &s->presence_penalty);
  take(stated.frequency_penalty, &s->frequency_penalty);
  if (stated.top_k) s->top_k = static_cast<int32_t>(std::max<int64_t>(0, *stated.top_k));
}

SamplingParams DefaultSampling(const StatedSampling& flags, const StatedSampling& model) {
  SamplingParams s;
  s.temperature = static_cast<float>(kUsualTemperature);
  s.top_p = static_cast<float>(kUsualTopP);
  s.top_k = static_cast<int32_t>(kUsualTopK);
  s.min_p = static_cast<float>(kUsualMinP);
  ApplySampling(model, &s);
  ApplySampling(flags, &s);
  return s;
}

std::string DefaultSamplingText(const StatedSampling& flags, const StatedSampling& model,
                                const std::string& model_source) {
  const StatedSampling& f = flags;
  const StatedSampling& m = model;
  std::vector<Value> shown = {
      Chosen("temperature", f.temperature, m.temperature, kUsualTemperature, false),
      Chosen("top_p", f.top_p, m.top_p, kUsualTopP, false),
      Chosen("top_k", f.top_k, m.top_k, kUsualTopK, false),
      Chosen("min_p", f.min_p, m.min_p, kUsualMinP, false),
      Chosen("repetition_penalty", f.repetition_penalty, m.repetition_penalty, 1.0, true),
      Chosen("presence_penalty", f.presence_penalty, m.presence_penalty, 0.0, true),
      Chosen("frequency_penalty", f.frequency_penalty, m.frequency_penalty, 0.0, true),
  };
  std::erase_if(shown, [](const Value& v) { return v.off; });
  std::string text;
  for (size_t i = 0; i < shown.size(); ++i) {
    text += fmt::format("{}{} {:.7g}", i == 0 ? "" : ", ", shown[i].name, shown[i].value);
    if (i + 1 < shown.size() && shown[i + 1].from == shown[i].from) continue;
    text += shown[i].from == Value::From::kFlag    ? " (by flag)"
            : shown[i].from == Value::From::kModel ? " (" + model_source + ")"
                                                   : " (built in)";
  }
  return text;
}

bool TakeTopK(double value, StatedSampling* to) {
  if (value > std::numeric_limits<int32_t>::max() || std::floor(value) != value) return false;
  to->top_k = value > 0 ? static_cast<int64_t>(value) : 0;
  return true;
}

bool TakeTopP(double value, StatedSampling* to) {
  if (!(value >= 0.0 && value <= 1.0)) return false;
  to->top_p = std::max(value, static_cast<double>(std::numeric_limits<float>::min()));
  return true;
}

}  // namespace tactus::compute
