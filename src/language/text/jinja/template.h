// A compiled template and its rendering: the boundary where TemplateError becomes a Status and JSON becomes values.
// Immutable after Compile: any thread may render.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "language/text/jinja/interpreter.h"
#include "tactus/status.h"

namespace tactus::language::jinja {

inline constexpr size_t kMaxSourceBytes = size_t{1} << 20;

struct RenderOptions {
  Limits limits;
  StopToken stop;      // kCancelled soon after it is set
  int64_t now_s = -1;  // seconds since the epoch for strftime_now; below 0: the wall clock
};

class Template {
 public:
  // kInvalidArgument with the line: a syntax error. kUnimplemented with the line: a feature of jinja2 not built here.
  static Result<std::unique_ptr<Template>> Compile(std::string_view source);

  // `variables`: an object; every member is a variable. kInvalidArgument: the template failed or raised
  // (raise_exception: its text alone); kTooLarge: a limit.
  Result<std::string> Render(const Json& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::unique_ptr<Program> program) : program_(std::move(program)) {}
  std::unique_ptr<Program> program_;
};

}  // namespace tactus::language::jinja
