#include "hub/remote_name.h"

#include <gtest/gtest.h>

namespace tactus::hub {
namespace {

constexpr const char* kEndpoint = "https://hub.example:8443";

RemoteName Parsed(const std::string& text) {
  const auto name = ParseRemoteName(text, kEndpoint);
  EXPECT_TRUE(name.ok() && name->has_value()) << text << ": " << name.status().message();
  return name.ok() && *name ? **name : RemoteName();
}

TEST(RemoteName, RepositoriesHaveRevisionAndSelector) {
  const RemoteName name = Parsed("hf:org/my-model_1.0@refs/pr/2:Q4_K_M");
  EXPECT_EQ(name.repository, "org/my-model_1.0");
  EXPECT_EQ(name.revision, "refs/pr/2");
  EXPECT_EQ(name.selector, "Q4_K_M");
  EXPECT_EQ(name.Text(), "hf:org/my-model_1.0@refs/pr/2:Q4_K_M");
  EXPECT_EQ(Parsed("hf:gpt2").Text(), "hf:gpt2");
  EXPECT_EQ(Parsed("hf://org/m").Text(), "hf:org/m");
  EXPECT_EQ(Parsed("hf:org/m@main").Text(), "hf:org/m");
  EXPECT_EQ(Parsed("hf.co/org/m:Q8_0").Text(), "hf:org/m:Q8_0");
  EXPECT_EQ(Parsed("hf:org/m:a/b.gguf").selector, "a/b.gguf");
}

TEST(RemoteName, PagesOfTheHubAreRepositories) {
  EXPECT_EQ(Parsed("https://huggingface.co/org/m").Text(), "hf:org/m");
  EXPECT_EQ(Parsed("https://huggingface.co/org/m/").Text(), "hf:org/m");
  EXPECT_EQ(Parsed("https://huggingface.co/org/m/tree/v1/folder").Text(), "hf:org/m@v1");
  EXPECT_EQ(Parsed("https://hf.co/org/m/blob/main/a/b.gguf").Text(), "hf:org/m:a/b.gguf");
  EXPECT_EQ(Parsed(std::string(kEndpoint) + "/org/m/resolve/v1/x.gguf?download=true").Text(), "hf:org/m@v1:x.gguf");
}

TEST(RemoteName, OtherUrlsAreFiles) {
  const std::string hash(64, 'A');
  const RemoteName name = Parsed("http://example.com/a/m.GGUF?x=1#sha256=" + hash);
  EXPECT_TRUE(name.repository.empty());
  EXPECT_EQ(name.url, "http://example.com/a/m.GGUF?x=1");
  EXPECT_EQ(name.sha256, std::string(64, 'a'));
  EXPECT_EQ(name.Text(), name.url);
  EXPECT_EQ(Parsed("https://huggingface.co.evil.example/org/m.gguf").repository, "");
}

TEST(RemoteName, LocalNamesAreNone) {
  for (const char* text : {"smollm2-135m", "./hf/x", "/models/m.gguf", "org/m", "qwen3:0.6b", ""}) {
    const auto name = ParseRemoteName(text, kEndpoint);
    ASSERT_TRUE(name.ok()) << text;
    EXPECT_FALSE(name->has_value()) << text;
  }
}

TEST(RemoteName, FaultsNameTheText) {
  for (const char* text :
       {"hf:", "hf:/", "hf:a/b/c", "hf:..", "hf:a/..", "hf:-a/b", "hf:a/b.", "hf:a--b/c", "hf:a/b c", "hf:a/b@",
        "hf:a/b@../x", "hf:a/b@x y", "hf:a/b:", "hf:a/b:../../x", "hf:a/b:/x", "https://huggingface.co/org/m/pull/1",
        "https://example.com/m.bin", "https://example.com/m.gguf#sha256=12", "https://example.com/..%2fm.gguf"}) {
    const auto name = ParseRemoteName(text, kEndpoint);
    ASSERT_FALSE(name.ok()) << text;
    EXPECT_EQ(name.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(name.status().message().find(text), std::string::npos) << name.status().message();
  }
}

}  // namespace
}  // namespace tactus::hub
