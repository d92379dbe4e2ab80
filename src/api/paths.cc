#include "api/paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace tactus::api {
namespace {

// Paths that are below /v1 even if a client omits it.
constexpr std::string_view kFamilies[] = {
    "/chat/completions", "/completions",   "/responses",     "/messages", "/models",     "/files",
    "/batches",          "/requests",      "/embeddings",    "/audio",    "/images",     "/videos",
    "/rerank",           "/score",         "/moderations",   "/realtime", "/assistants", "/threads",
    "/fine_tuning",      "/vector_stores", "/conversations", "/uploads",  "/complete"};

constexpr std::string_view kGenerates =
    "this server generates text, with /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages";

struct Missing {
  std::string_view path;  // and all paths below it
  std::string_view what;  // is not built
  std::string_view instead;
};

constexpr Missing kMissing[] = {
    // --- OpenAI's and vLLM's ---
    {"/v1/embeddings", "embeddings are", kGenerates},
    {"/v1/audio", "audio is", kGenerates},
    {"/v1/images", "images are", kGenerates},
    {"/v1/videos", "videos are", kGenerates},
    {"/v1/realtime", "realtime sessions are", kGenerates},
    {"/v1/rerank", "reranking is", kGenerates},
    {"/v2/rerank", "reranking is", kGenerates},
    {"/v1/score", "scoring is", kGenerates},
    {"/v1/pooling", "pooling is", kGenerates},
    {"/pooling", "pooling is", kGenerates},
    {"/v1/classify", "classification is", kGenerates},
    {"/classify", "classification is", kGenerates},
    {"/v1/moderations", "moderation is", kGenerates},
    {"/v1/assistants", "assistants are", "there are /v1/chat/completions and /v1/responses"},
    {"/v1/threads", "threads are", "send the whole conversation to /v1/chat/completions or /v1/responses"},
    {"/v1/conversations", "stored conversations are", "send the whole conversation to /v1/responses"},
    {"/v1/responses", "stored responses are", "send the whole conversation to /v1/responses"},
    {"/v1/chat/completions", "stored answers are", "send the whole conversation to /v1/chat/completions"},
    {"/v1/vector_stores", "vector stores are", kGenerates},
    {"/v1/fine_tuning", "fine-tuning is", kGenerates},
    {"/v1/uploads", "uploads in parts are", "there is /v1/files"},
    {"/v1/load_lora_adapter", "adapters are", "there is /v1/models"},
    {"/v1/unload_lora_adapter", "adapters are", "there is /v1/models"},
    {"/invocations", "SageMaker's routes are", "there is /v1/chat/completions"},
    {"/ping", "SageMaker's routes are", "there are /health and /ready"},
    {"/load", "this route is", "there is /metrics"},
    {"/server_info", "this route is", "there are /version and /v1/models"},
    {"/tokenizer_info", "this route is", "there are /tokenize and /detokenize"},
    {"/reset_prefix_cache", "this route is", "give cache_salt where a prefix shall not be shared"},
    {"/sleep", "sleeping is", "there is /health"},
    {"/wake_up", "sleeping is", "there is /health"},
    // --- Anthropic's ---
    {"/v1/complete", "the older completions API is", "there are /v1/messages and /v1/completions"},
    {"/v1/messages/batches", "message batches are", "there is /v1/batches, in OpenAI's form"},
    // --- Ollama's, LM Studio's, KoboldCpp's ---
    {"/api/chat", "Ollama's API is", "there is /v1/chat/completions"},
    {"/api/generate", "Ollama's API is", "there is /v1/completions"},
    {"/api/tags", "Ollama's API is", "there is /v1/models"},
    {"/api/show", "Ollama's API is", "there is /v1/models"},
    {"/api/ps", "Ollama's API is", "there is /v1/models"},
    {"/api/version", "Ollama's API is", "there is /version"},
    {"/api/embed", "embeddings are", kGenerates},
    {"/api/embeddings", "embeddings are", kGenerates},
    {"/api", "this API (Ollama's, LM Studio's) is", "there is OpenAI's, with /v1/chat/completions and /v1/models"},
    // --- llama.cpp's ---
    {"/completion", "llama.cpp's own API is", "there is /v1/completions"},
    {"/infill", "fill-in-the-middle is", "there is /v1/completions"},
    {"/embedding", "embeddings are", kGenerates},
    {"/reranking", "reranking is", kGenerates},
    {"/v1/reranking", "reranking is", kGenerates},
    {"/props", "llama.cpp's own API is", "there are /v1/models and /version"},
    {"/slots", "llama.cpp's own API is", "there are /metrics and /v1/requests/{id}/explain"},
    {"/apply-template", "llama.cpp's own API is", "/tokenize takes messages"},
    {"/lora-adapters", "adapters are", "there is /v1/models"},
    // --- SGLang's, TGI's ---
    {"/generate", "SGLang's and TGI's own API is", "there is /v1/completions"},
    {"/generate_stream", "TGI's own API is", "there is /v1/completions, with \"stream\": true"},
    {"/encode", "embeddings are", kGenerates},
    {"/info", "TGI's own API is", "there are /v1/models and /version"},
    {"/get_model_info", "SGLang's own API is", "there is /v1/models"},
    {"/model_info", "SGLang's own API is", "there is /v1/models"},
    {"/get_server_info", "SGLang's own API is", "there is /version"},
    {"/health_generate", "SGLang's own API is", "there are /health and /ready"},
    {"/flush_cache", "SGLang's own API is", "give cache_salt where a prefix shall not be shared"},
    // --- Others' ---
    {"/v1beta", "Google's API is", "there is /v1/chat/completions"},
    {"/v2", "Triton's API is", "there is /v1/chat/completions"},
    {"/healthz", "this route is", "there is /health"},
    {"/livez", "this route is", "there is /health"},
    {"/readyz", "this route is", "there is /ready"},
    {"/docs", "a page of the API is", "there is /openapi.json"},
    {"/redoc", "a page of the API is", "there is /openapi.json"},
    {"/swagger", "a page of the API is", "there is /openapi.json"},
};

constexpr std::string_view kOfRouters[] = {"/fleet/replicas", "/fleet/drain", "/fleet/undrain"};
constexpr std::string_view kOfServers[] = {"/fleet/state",   "/fleet/migrate", "/fleet/import",
                                           "/fleet/streams", "/simulate",      "/capacity"};

bool IsOrIsBelow(std::string_view path, std::string_view root) {
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

template <class List>
bool AnyHolds(const List& roots, std::string_view path) {
  return std::any_of(std::begin(roots), std::end(roots),
                     [path](std::string_view root) { return IsOrIsBelow(path, root); });
}

}  // namespace

std::string CanonicalPath(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  if (path.find_first_not_of('/') == std::string_view::npos) return std::string(path);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.starts_with("/v1/v1/")) path.remove_prefix(kVersion.size());
  return AnyHolds(kFamilies, path) ? std::string(kVersion).append(path) : std::string(path);
}

std::string NoRouteText(std::string_view path, Asked asked) {
  constexpr size_t kShownBytes = 256;
  const std::string shown = Printable(path.substr(0, kShownBytes));
  const std::string canonical = CanonicalPath(path);
  const bool router = asked == Asked::kRouter;
  if (!router && AnyHolds(kOfRouters, canonical)) {
    return fmt::format(
        "{} does not exist here: it is a router's (tactus route), and this is a server; send it to the router", shown);
  }
  if (router && AnyHolds(kOfServers, canonical)) {
    return fmt::format(
        "{} does not exist here: it is a server's (tactus serve), and this is a router; send it to a replica "
        "(/fleet/replicas lists them)",
        shown);
  }
  const Missing* best = nullptr;
  for (const Missing& missing : kMissing) {
    const bool longer = best == nullptr || missing.path.size() > best->path.size();
    if (longer && IsOrIsBelow(canonical, missing.path)) best = &missing;
  }
  if (best == nullptr) return fmt::format("{} does not exist here", shown);
  return fmt::format("{} does not exist here: {} not built; {}", shown, best->what, best->instead);
}

}  // namespace tactus::api
