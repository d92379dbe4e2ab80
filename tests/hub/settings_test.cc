#include "hub/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace tactus::hub {
namespace {

Result<Settings> With(std::map<std::string, std::string> variables) {
  return SettingsFrom([variables](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::string() : it->second;
  });
}

TEST(Settings, TheCacheIsThatOfOtherTools) {
  EXPECT_EQ(With({{"HOME", "/h"}})->cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(With({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})->cache, "/x/huggingface/hub");
  EXPECT_EQ(With({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "~/f"}})->cache, "/h/f/hub");
  EXPECT_EQ(With({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/old"}})->cache, "/old");
  EXPECT_EQ(With({{"HF_HUB_CACHE", "/c"}, {"HUGGINGFACE_HUB_CACHE", "/old"}})->cache, "/c");
}

TEST(Settings, TheEndpointHasNoSlashAtItsEnd) {
  EXPECT_EQ(With({})->endpoint, "https://huggingface.co");
  EXPECT_EQ(With({{"HF_ENDPOINT", "http://mirror/x//"}})->endpoint, "http://mirror/x");
  EXPECT_EQ(With({{"HF_ENDPOINT", "mirror"}}).status().code(), StatusCode::kInvalidArgument);
}

TEST(Settings, SwitchesAreOnInAnyCase) {
  for (const char* on : {"1", "true", "ON", "Yes"}) EXPECT_TRUE(With({{"HF_HUB_OFFLINE", on}})->offline) << on;
  for (const char* off : {"", "0", "false", "no"}) EXPECT_FALSE(With({{"HF_HUB_OFFLINE", off}})->offline) << off;
  EXPECT_TRUE(With({{"TRANSFORMERS_OFFLINE", "1"}})->offline);
}

TEST(Settings, TokensHavePlacesInOrder) {
  const std::string home = testing::TempDir() + "/settings";
  std::filesystem::create_directories(home);
  std::ofstream(home + "/token") << " hf_file\n";
  std::ofstream(home + "/other") << "hf_other";
  EXPECT_EQ(With({{"HF_HOME", home}})->token, "hf_file");
  EXPECT_EQ(With({{"HF_HOME", home}})->token_source, home + "/token");
  EXPECT_EQ(With({{"HF_HOME", home}, {"HF_TOKEN_PATH", home + "/other"}})->token, "hf_other");
  EXPECT_EQ(With({{"HF_HOME", home}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}})->token, "hf_old");
  EXPECT_EQ(With({{"HF_TOKEN", " hf_new "}, {"HUGGING_FACE_HUB_TOKEN", "hf_old"}})->token, "hf_new");
  EXPECT_EQ(With({{"HF_TOKEN", "x"}})->token_source, "HF_TOKEN");
  EXPECT_EQ(With({{"HF_TOKEN", "x"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}})->token, "");
  EXPECT_EQ(With({{"HF_HOME", home + "/none"}})->token_source, "");
  const Status split = With({{"HF_TOKEN", "a\r\nX-Header: b"}}).status();
  EXPECT_EQ(split.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(split.message().find("X-Header"), std::string::npos);
}

TEST(Settings, TheTimeOutIsInSeconds) {
  EXPECT_EQ(With({})->stall_ns, 30 * kSecond);
  EXPECT_EQ(With({{"HF_HUB_DOWNLOAD_TIMEOUT", "7"}})->stall_ns, 7 * kSecond);
  for (const char* text : {"0", "-1", "x", "7s", "99999"})
    EXPECT_FALSE(With({{"HF_HUB_DOWNLOAD_TIMEOUT", text}}).ok()) << text;
}

TEST(Settings, CertificatesHaveTheUsualVariables) {
  EXPECT_EQ(With({{"REQUESTS_CA_BUNDLE", "/r"}, {"CURL_CA_BUNDLE", "/c"}})->certificates, "/r");
  EXPECT_EQ(With({{"SSL_CERT_FILE", "/s"}, {"REQUESTS_CA_BUNDLE", "/r"}})->certificates, "/s");
}

}  // namespace
}  // namespace tactus::hub
