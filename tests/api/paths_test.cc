// Paths as clients write them, and the alternatives that errors name for missing routes.
#include "api/paths.h"

#include <gtest/gtest.h>

#include "api/apis.h"

namespace tactus::api {
namespace {

TEST(Paths, TheVersionMayBeLeftOutAndSlashesMayFollow) {
  for (const auto& [written, meant] :
       {std::pair("/v1/chat/completions", "/v1/chat/completions"),
        std::pair("/chat/completions", "/v1/chat/completions"),
        std::pair("/v1/chat/completions/", "/v1/chat/completions"), std::pair("/completions//", "/v1/completions"),
        std::pair("/responses", "/v1/responses"), std::pair("/messages", "/v1/messages"),
        std::pair("/messages/count_tokens/", "/v1/messages/count_tokens"), std::pair("/models", "/v1/models"),
        std::pair("/models/a/b", "/v1/models/a/b"), std::pair("/files/x/content", "/v1/files/x/content"),
        std::pair("/batches/x", "/v1/batches/x"), std::pair("/requests/x/explain", "/v1/requests/x/explain"),
        std::pair("/v1/v1/messages", "/v1/messages"), std::pair("/health/", "/health"), std::pair("/", "/"),
        std::pair("//", "//"), std::pair("/tokenize/", "/tokenize"), std::pair("/modelsx", "/modelsx")})
    EXPECT_EQ(CanonicalPath(written), meant) << written;
  EXPECT_EQ(&ApiOfPath("/messages/"), &kMessagesApi);
  EXPECT_EQ(&ApiOfPath("/responses"), &kResponsesApi);
}

TEST(Paths, ErrorsOfUnbuiltRoutesNameTheAlternative) {
  const auto says = [](const char* path, const char* what, Asked asked = Asked::kServer) {
    const std::string text = NoRouteText(path, asked);
    EXPECT_TRUE(text.starts_with(std::string(path) + " does not exist here")) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  for (const char* path :
       {"/v1/embeddings", "/embeddings", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/images/generations",
        "/v1/rerank", "/rerank", "/v1/score", "/v1/moderations", "/api/embed"}) {
    says(path, "not built");
    says(path, "/v1/chat/completions");
  }
  says("/api/chat", "Ollama's API is not built; there is /v1/chat/completions");
  says("/api/generate", "/v1/completions");
  says("/api/tags", "/v1/models");
  says("/api/anything/else", "/v1/chat/completions");
  says("/completion", "llama.cpp's own API is not built; there is /v1/completions");
  says("/infill", "fill-in-the-middle is not built");
  says("/v1/responses/resp_1", "stored responses are not built");
  says("/v1/messages/batches", "/v1/batches");
  says("/v1/complete", "/v1/messages");
  EXPECT_EQ(NoRouteText("/nonsense", Asked::kServer), "/nonsense does not exist here");
}

TEST(Paths, ErrorsNameTheProcessThatHasTheRoute) {
  for (const char* path : {"/fleet/replicas", "/fleet/drain", "/fleet/undrain/"}) {
    EXPECT_NE(NoRouteText(path, Asked::kServer).find("it is a router's"), std::string::npos);
  }
  for (const char* path : {"/fleet/state", "/fleet/streams/x", "/simulate"}) {
    EXPECT_NE(NoRouteText(path, Asked::kRouter).find("it is a server's"), std::string::npos);
  }
}

}  // namespace
}  // namespace tactus::api
