// Any bytes as a chat template, rendered with a small conversation: an error or a text, within the limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "language/text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tactus::Json variables = tactus::Json::parse(R"({
    "messages": [{"role": "system", "content": "Be \u00e9 \ud83d\ude00."}, {"role": "user", "content": "<hi> & 'x'\n"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}],
    "tools": [{"type": "function", "function": {"name": "f"}}], "add_generation_prompt": true, "s": "a b,c", "n": 3, "x": 2.5,
    "l": [3, 1, 2], "d": {"k": "v", "j": [1]}})");
  const auto compiled = tactus::language::jinja::Template::Compile({reinterpret_cast<const char*>(data), size});
  if (!compiled.ok()) return 0;
  tactus::language::jinja::RenderOptions options;
  options.now_s = 1753362793;
  options.limits.steps = 20'000;
  options.limits.memory_bytes = size_t{16} << 20;
  options.limits.output_bytes = size_t{1} << 20;
  (void)compiled.value()->Render(variables, options);
  return 0;
}
