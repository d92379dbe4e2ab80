#include "language/text/jinja/template.h"

#include <exception>
#include <new>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

namespace tactus::language::jinja {
namespace {

Status ToStatus(const TemplateError& error) {
  if (error.kind == TemplateError::Kind::kRaised) return InvalidArgument(error.message);
  const std::string where = "chat template" + (error.line > 0 ? " line " + std::to_string(error.line) : "") + ": ";
  switch (error.kind) {
    case TemplateError::Kind::kUnsupported:
      return Unimplemented(where + error.message);
    case TemplateError::Kind::kStopped:
      return Status(StatusCode::kCancelled, error.message);
    case TemplateError::Kind::kLimit:
      return Status(StatusCode::kTooLarge, where + error.message);
    default:
      return InvalidArgument(where + error.message);
  }
}

template <class F>
Status Guarded(F work) {
  try {
    work();
    return Status();
  } catch (const TemplateError& error) {
    return ToStatus(error);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, "chat template: not enough memory at the moment");
  } catch (const std::exception& error) {
    return Internal(std::string("chat template: ") + error.what());
  }
}

// Texts are shared with the JSON, which outlives the render.
class Converter {
 public:
  explicit Converter(Interpreter* run) : run_(run) {}

  Value Text(const std::string& text) {
    Heap& heap = run_->heap();
    run_->ChargeText(text.size());
    return IsValidUtf8(text) ? heap.NewView(text) : heap.NewString(ReplaceInvalidUtf8(text));
  }

  Value Convert(const Json& json, int depth) {
    if (depth > kMaxNesting) ThrowLimit("the conversation is nested deeper than " + std::to_string(kMaxNesting));
    run_->Charge(1);
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value::Bool(json.get<bool>());
      case Json::value_t::number_integer:
        return Value::Int(json.get<int64_t>());
      case Json::value_t::number_unsigned:
        return Value::Unsigned(json.get<uint64_t>());
      case Json::value_t::number_float:
        return Value::Float(json.get<double>());
      case Json::value_t::string:
        return Text(json.get_ref<const std::string&>());
      case Json::value_t::array: {
        Value* items = run_->heap().NewArray<Value>(json.size());
        for (size_t k = 0; k < json.size(); ++k) items[k] = Convert(json[k], depth + 1);
        return run_->heap().NewSeqView(SeqKind::kList, {items, json.size()});
      }
      case Json::value_t::object: {
        std::vector<DictItem> items;
        items.reserve(json.size());
        for (const auto& [key, value] : json.items()) items.push_back({Text(key), Convert(value, depth + 1)});
        return run_->heap().NewDict(std::move(items));
      }
      default:
        return Value::None();
    }
  }

 private:
  Interpreter* run_;
};

}  // namespace

Result<std::unique_ptr<Template>> Template::Compile(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidArgument("chat template: its source has " + std::to_string(source.size()) + " bytes; the limit is " +
                           std::to_string(kMaxSourceBytes));
  }
  if (!IsValidUtf8(source)) return InvalidArgument("chat template: its source is not valid UTF-8");
  std::unique_ptr<Program> program;
  TACTUS_RETURN_IF_ERROR(Guarded([&] { program = Parse(source); }));
  return std::unique_ptr<Template>(new Template(std::move(program)));
}

Result<std::string> Template::Render(const Json& variables, const RenderOptions& options) const {
  if (!variables.is_object()) return InvalidArgument("chat template: its variables must be an object");
  std::string text;
  TACTUS_RETURN_IF_ERROR(Guarded([&] {
    Interpreter run(*program_, options.limits, options.now_s < 0 ? UnixSeconds() : options.now_s, options.stop);
    Converter converter(&run);
    for (const auto& [name, value] : variables.items()) {
      if (program_->ids.contains(name)) run.SetVariable(name, converter.Convert(value, 0));
    }
    text = run.Run();
  }));
  return text;
}

}  // namespace tactus::language::jinja
