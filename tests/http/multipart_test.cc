// multipart/form-data in any pieces: valid parts and malformed bodies.
#include "http/multipart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace tactus::http {
namespace {

struct Parts final : PartSink {
  Status OnPart(const PartHead& head) override {
    heads.push_back(head);
    bodies.emplace_back();
    return refused;
  }
  Status OnData(std::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    bodies.back() += bytes;
    return Status();
  }
  Status OnPartEnd() override {
    ++ended;
    return Status();
  }
  std::vector<PartHead> heads;
  std::vector<std::string> bodies;
  size_t ended = 0;
  Status refused;
};

Status Read(std::string_view body, Parts* parts, size_t piece) {
  MultipartReader reader("B", parts);
  for (size_t at = 0; at < body.size(); at += piece) TACTUS_RETURN_IF_ERROR(reader.Feed(body.substr(at, piece)));
  return reader.Finish();
}

std::string Part(const std::string& disposition, const std::string& body) {
  return "--B\r\nContent-Disposition: form-data; " + disposition + "\r\n\r\n" + body + "\r\n";
}

TEST(MultipartTest, PartsAreTheSameInAnyPieces) {
  const std::string tricky = "\r\n--C\r\n-\r\n--\r\n\r\n--";
  const std::string body = Part("name=\"purpose\"", "batch") + Part("name=file; filename=\"a b.jsonl\"", tricky) +
                           Part("name=\"empty\"", "") + "--B--\r\nwhatever follows";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    Parts parts;
    ASSERT_TRUE(Read(body, &parts, piece).ok()) << piece;
    ASSERT_EQ(parts.heads.size(), 3u) << piece;
    EXPECT_EQ(parts.ended, 3u);
    EXPECT_EQ(parts.heads[0].name, "purpose");
    EXPECT_FALSE(parts.heads[0].filename);
    EXPECT_EQ(*parts.heads[1].filename, "a b.jsonl");
    EXPECT_EQ(parts.bodies, (std::vector<std::string>{"batch", tricky, ""}));
  }
}

TEST(MultipartTest, HeadersOfAPart) {
  const auto head = [](const std::string& lines) {
    Parts parts;
    const Status status = Read("--B\r\n" + lines + "\r\n\r\n--B--", &parts, 1000);
    return status.ok() && !parts.heads.empty() ? parts.heads[0].name + "|" + parts.heads[0].filename.value_or("none")
                                               : status.message();
  };
  EXPECT_EQ(head("content-DISPOSITION:form-data;name=\"a\\\"b\";filename=C:\\x\r\nContent-Type: text/plain\r\n"),
            "a\"b|C:\\x");
  EXPECT_EQ(head("Content-Disposition: form-data; name=\"x; y\"; filename=\"\"\r\n"), "x; y|");
  EXPECT_EQ(head("Content-Disposition: form-data; name=x; filename*=utf-8''a\r\n"), "x|none");
  EXPECT_NE(head("Content-Disposition: form-data\r\n").find("no name"), std::string::npos);
  EXPECT_NE(head("Content-Disposition: attachment; name=x\r\n").find("form-data"), std::string::npos);
  EXPECT_NE(head("Content-Type: text/plain\r\n").find("no Content-Disposition"), std::string::npos);
  EXPECT_NE(head("nonsense\r\n").find("without ':'"), std::string::npos);
  EXPECT_NE(head("X: " + std::string(9000, 'x') + "\r\n").find("longer than 8192 bytes"), std::string::npos);
}

TEST(MultipartTest, MalformedBodiesAreRefused) {
  const auto why = [](const std::string& body) {
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
      Parts parts;
      const Status status = Read(body, &parts, piece);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body.substr(0, 100);
      if (piece == 7) return status.message();
    }
    return std::string();
  };
  EXPECT_NE(why("").find("before its closing boundary"), std::string::npos);
  EXPECT_NE(why("{}").find("does not begin with its boundary"), std::string::npos);
  EXPECT_NE(why("preamble\r\n--B\r\n").find("does not begin"), std::string::npos);
  EXPECT_NE(why(Part("name=a", "x")).find("before its closing"), std::string::npos);
  EXPECT_NE(why("--Bx\r\n").find("neither a line break"), std::string::npos);
  EXPECT_NE(why("--B\r\n\r\nx\r\n--B--").find("no Content-Disposition"), std::string::npos);
  std::string many;
  for (int i = 0; i < 65; ++i) many += Part("name=a", "");
  EXPECT_NE(why(many + "--B--").find("more than 64 parts"), std::string::npos);
  Parts refusing;
  refusing.refused = InvalidArgument("no");
  EXPECT_EQ(Read(Part("name=a", "x") + "--B--", &refusing, 1000).message(), "no");
  EXPECT_EQ(refusing.ended, 0u);
}

TEST(MultipartTest, Boundaries) {
  EXPECT_EQ(*MultipartBoundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*MultipartBoundary("Multipart/Form-Data; charset=x; BOUNDARY=\"a b\""), "a b");
  for (const std::string bad : {"", "multipart/form-data", "multipart/form-data; boundary=",
                                "multipart/mixed; boundary=x", "application/json; boundary=x"})
    EXPECT_EQ(MultipartBoundary(bad).status().param(), "Content-Type") << bad;
  EXPECT_TRUE(MultipartBoundary("multipart/form-data; boundary=" + std::string(70, 'x')).ok());
  EXPECT_FALSE(MultipartBoundary("multipart/form-data; boundary=" + std::string(71, 'x')).ok());
}

}  // namespace
}  // namespace tactus::http
