#include "base/hash.h"

#include <gtest/gtest.h>

namespace tactus {
namespace {

// The first vectors of the SipHash authors' reference (vectors_sip128): key 00..0f, message 00 01 02 ... of n bytes.
TEST(SipHash128, MatchesTheReferenceVectors) {
  const Hash128 key{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  const unsigned char message[1] = {0};
  const Hash128 empty = SipHash128(key, message, 0);
  EXPECT_EQ(empty.low, 0xe6a825ba047f81a3ULL);
  EXPECT_EQ(empty.high, 0x930255c71472f66dULL);
  const Hash128 one = SipHash128(key, message, 1);
  EXPECT_EQ(one.low, 0x44af996bd8c187daULL);
  EXPECT_EQ(one.high, 0x45fc229b11597634ULL);
}

// The vectors of 8 bytes, one whole word, and of 15, the longest tail.
TEST(SipHash128, MatchesTheReferenceVectorsAtTheEdgesOfAWord) {
  const Hash128 key{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  unsigned char message[15];
  for (unsigned char i = 0; i < 15; ++i) message[i] = i;
  EXPECT_EQ(SipHash128(key, message, 8), (Hash128{0x61f55862baa9623bULL, 0xb49714f364e2830fULL}));
  EXPECT_EQ(SipHash128(key, message, 15), (Hash128{0x11a8b03399e99354ULL, 0xd9c3cf970fec087eULL}));
}

TEST(SipHash128, DependsOnKeyLengthAndEveryByte) {
  unsigned char message[33] = {};
  const Hash128 base = SipHash128({1, 2}, message, 32);
  EXPECT_NE(base, SipHash128({1, 3}, message, 32));
  EXPECT_NE(base, SipHash128({1, 2}, message, 33));
  for (int i = 0; i < 32; ++i) {
    message[i] = 1;
    EXPECT_NE(base, SipHash128({1, 2}, message, 32)) << i;
    message[i] = 0;
  }
}

}  // namespace
}  // namespace tactus
