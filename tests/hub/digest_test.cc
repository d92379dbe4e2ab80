#include "hub/digest.h"

#include <gtest/gtest.h>

namespace tactus::hub {
namespace {

std::string HashOf(const std::string& like, const std::string& data) {
  const auto digest = Digest::ForHash(like, static_cast<int64_t>(data.size()));
  for (const char c : data) digest->Add(&c, 1);
  return digest->Hex();
}

TEST(Digest, LongHashesAreSha256) {
  EXPECT_EQ(HashOf(std::string(64, '0'), "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, ShortHashesAreThoseOfGit) {
  // git hash-object of "hello\n" and of an empty file
  EXPECT_EQ(HashOf(std::string(40, '0'), "hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(HashOf(std::string(40, '0'), ""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST(Digest, OtherTextsAreNoHash) {
  for (const char* text : {"", "abc", "zz013625030ba8dba906f756967f9e9ca394464a"})
    EXPECT_EQ(Digest::ForHash(text, 1), nullptr) << text;
}

}  // namespace
}  // namespace tactus::hub
