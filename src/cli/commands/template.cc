// `tactus template MODEL|FILE.jinja --messages FILE.json`: renders a conversation with the chat template.
#include <fmt/format.h>

#include <cstdio>

#include "base/input_file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/commands/remote_model.h"
#include "cli/options/option_binding.h"
#include "compute/model/catalog.h"
#include "engine/start/model_text.h"

namespace tactus::cli {
namespace {

constexpr int64_t kMostFileBytes = int64_t{16} << 20;  // same limit as a request to the server

constexpr char kKwargs[] = "chat-template-kwargs";

struct TemplateOptions {
  std::string model, messages, tools, kwargs;
  bool add_generation_prompt = false, source = false;
  template <class V>
  void VisitFields(V& v) {
    v.Group("Conversation");
    v.Field("messages", messages,
            {.help = "JSON file: a list of messages, or an object with messages and other variables"});
    v.Field("tools", tools, {.help = "JSON file: a list of tools"});
    v.Field(kKwargs, kwargs, {.help = "JSON object of further variables"});
    v.Field("add-generation-prompt", add_generation_prompt, {.help = "end with the start of the assistant's answer"});
    v.Field("source", source, {.help = "print the template itself; with --tools the one for chats with tools"});
  }
};

Result<Json> ReadJson(const std::string& path) {
  TACTUS_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(path, kMostFileBytes));
  Result<Json> json = json_text::ParseJson(text);
  if (!json.ok()) return InvalidArgument(fmt::format("{}: {}", path, json.status().message()));
  return json;
}

Result<engine::ModelText> LoadTemplate(const std::string& name) {
  if (name.ends_with(".jinja") || name.ends_with(".j2")) {
    engine::ModelText text;
    TACTUS_ASSIGN_OR_RETURN(text.template_source, ReadInputFile(name, kMostFileBytes));
    TACTUS_ASSIGN_OR_RETURN(text.chat_template, language::ChatTemplate::Compile(text.template_source));
    return text;
  }
  TACTUS_ASSIGN_OR_RETURN(const std::string path, LocalModel(name));
  TACTUS_ASSIGN_OR_RETURN(const compute::ModelDescription description, compute::DescribeModel(path));
  TACTUS_ASSIGN_OR_RETURN(engine::ModelText text, engine::LoadModelText(description, {}));
  if (!text.chat_template) {
    return NotFound(fmt::format("{} has no chat template; name a .jinja file, or a model that has one", path));
  }
  return text;
}

Result<std::string> Render(const TemplateOptions& options) {
  TACTUS_ASSIGN_OR_RETURN(const engine::ModelText text, LoadTemplate(options.model));
  if (options.source)
    return options.tools.empty() || text.tool_use_source.empty() ? text.template_source : text.tool_use_source;
  TACTUS_ASSIGN_OR_RETURN(Json variables, ReadJson(options.messages));
  if (variables.is_array()) variables = Json{{"messages", variables}};
  if (!variables.is_object() || !variables.contains("messages")) {
    return InvalidArgument(fmt::format(
        "{} is not a list of messages or an object with one; write [{{\"role\": \"user\", \"content\": \"...\"}}]",
        options.messages));
  }
  if (!options.tools.empty()) {
    TACTUS_ASSIGN_OR_RETURN(variables["tools"], ReadJson(options.tools));
    if (!variables["tools"].is_array()) {
      return InvalidArgument(
          fmt::format("{} is not a list of tools; write it as the field tools of a request", options.tools));
    }
  }
  if (!options.kwargs.empty()) {
    const Result<Json> extra = json_text::ParseJson(options.kwargs);
    if (!extra.ok() || !extra->is_object())
      return InvalidArgument(
          "--chat-template-kwargs is not a JSON object; write one such as {\"enable_thinking\": false}", kKwargs);
    variables.update(*extra);
  }
  if (options.add_generation_prompt || !variables.contains("add_generation_prompt")) {
    variables["add_generation_prompt"] = options.add_generation_prompt;
  }
  for (const auto& [name, value] : {std::pair("bos_token", &text.bos_token), std::pair("eos_token", &text.eos_token)}) {
    if (!variables.contains(name)) variables[name] = *value;
  }
  return text.chat_template->Render(variables);
}

}  // namespace

int TemplateCommand(const Args& args) {
  TemplateOptions options;
  CommandLine line("template", "MODEL|FILE.jinja --messages FILE.json [options]",
                   "Renders a conversation with a chat template.");
  line.Add(options);
  line.Positional("MODEL", &options.model, true, "a model, or a Jinja file");
  if (const auto exit = line.ParseOrExit(args)) return *exit;
  if (options.messages.empty() && !options.source) {
    std::fprintf(stderr, "tactus template: --messages FILE.json is missing\n");
    return kExitUsage;
  }
  auto rendered = Render(options);
  if (!rendered.ok()) {
    std::fprintf(stderr, "tactus template: %s\n", rendered.status().message().c_str());
    return rendered.status().param() == kKwargs ? kExitUsage : kExitFailed;
  }
  std::fwrite(rendered->data(), 1, rendered->size(), stdout);
  return kExitOk;
}

}  // namespace tactus::cli
